//! Objects in the version that somebody asks for. What is kept in it already is handed on as it is, and costs a comparison.

use std::sync::Arc;

use super::Call;
use super::write::selectable;
use crate::error::ApiResult;
use crate::kind::Resource;
use crate::state::State;
use crate::store::Stored;

impl Resource {
    /// What is kept, as a reader of this version gets it.
    pub(crate) fn view(&self, stored: &Arc<Stored>) -> ApiResult<Arc<Stored>> {
        Ok(self.reread(stored)?.unwrap_or_else(|| Arc::clone(stored)))
    }

    /// Whether it is shown as it is kept.
    pub(crate) fn is_plain(&self, stored: &Stored) -> bool {
        match (&self.versions, &self.custom) {
            (Some(versions), Some(custom)) => versions.is_plain(stored, custom),
            _ => true,
        }
    }

    /// The same, or None where it is just what is kept.
    pub(crate) fn reread(&self, stored: &Stored) -> ApiResult<Option<Arc<Stored>>> {
        let (Some(versions), Some(custom)) = (&self.versions, &self.custom) else { return Ok(None) };
        if versions.is_plain(stored, custom) {
            return Ok(None);
        }
        let mut object = versions.read(stored, custom)?;
        let fields = selectable(self, &object);
        Ok(Some(Arc::new(Stored::new(stored.key.clone(), stored.revision, &mut object, fields))))
    }
}

impl State {
    /// The object that a call names, in the call's version.
    pub(super) fn live(&self, call: &Call<'_>) -> ApiResult<Option<Arc<Stored>>> {
        let found = self.find(&call.resource, &call.namespace, &call.name);
        found.map(|stored| call.resource.view(&stored)).transpose()
    }
}
