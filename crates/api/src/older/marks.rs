//! The marks that a translation leaves on objects, all in one place.
//!
//! ```text
//!  Provisioner lab ── translated ──▶ NodePool lab   kerf.dev/translated-from: provisioners.karpenter.sh/lab/<uid>
//!                                                   kerf.dev/provisioner-name: lab
//!        kerf convert, kubectl apply ─────────────▶ kerf.dev/released-from:   provisioners.karpenter.sh/lab
//! ```

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// On a NodePool or EC2NodeClass: the older object that it is made from ([`Origin`]), and that it therefore follows. Whoever edits
/// the object by hand is put back; whoever deletes the older object deletes this one.
pub const TRANSLATED_FROM: &str = "kerf.dev/translated-from";

/// On a NodePool or EC2NodeClass: it belongs to its users from now on, whatever [`TRANSLATED_FROM`] says. `kerf convert` writes it, so
/// that applying what it prints takes the object over. The value names the older object, for people.
pub const RELEASED_FROM: &str = "kerf.dev/released-from";

/// On a NodePool: its NodeClaims and Nodes carry the label `karpenter.sh/provisioner-name`, and its instances the tag of that name, with
/// this value beside those of the pool. It stands on the pool and not among the template's labels because the schema of v1 reserves
/// that label, and because it shall not count when drift is looked for.
pub const PROVISIONER_NAME: &str = "kerf.dev/provisioner-name";

/// On a Provisioner, an AWSNodeTemplate or an EC2NodeClass of `compute.k8s.aws`: `true` lets it be translated although it was there
/// before Kerf, beside NodePools. Without it such an object may be one that somebody forgot.
pub const TRANSLATE: &str = "kerf.dev/translate";

/// The label that nodes of a Provisioner are known by.
pub const PROVISIONER_NAME_LABEL: &str = "karpenter.sh/provisioner-name";

/// The older object that a translated one is made from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// Plural and group: `provisioners.karpenter.sh`.
    pub resource: String,
    pub name: String,
    /// Empty where the object comes from a file. A Provisioner that was deleted and made anew is another one.
    pub uid: String,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.resource, self.name)?;
        if self.uid.is_empty() { Ok(()) } else { write!(f, "/{}", self.uid) }
    }
}

impl FromStr for Origin {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(3, '/').map(str::to_owned);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(resource), Some(name), uid) if !resource.is_empty() && !name.is_empty() => {
                Ok(Self { resource, name, uid: uid.unwrap_or_default() })
            }
            _ => Err(()),
        }
    }
}

/// What a NodePool or EC2NodeClass is made from and still follows; `None` for one that its users wrote or took over.
pub fn origin(object: &Value) -> Option<Origin> {
    if is_released(object) {
        return None;
    }
    annotation(object, TRANSLATED_FROM)?.parse().ok()
}

/// Whether its users took a translated object over.
pub fn is_released(object: &Value) -> bool {
    annotation(object, RELEASED_FROM).is_some()
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mark_reads_back_as_it_was_written() {
        for (text, uid) in
            [("provisioners.karpenter.sh/lab/12-34", "12-34"), ("awsnodetemplates.karpenter.k8s.aws/a.b", "")]
        {
            let origin: Origin = text.parse().unwrap();
            assert_eq!((origin.uid.as_str(), origin.to_string().as_str()), (uid, text));
        }
        for text in ["", "lab", "/lab", "provisioners.karpenter.sh/"] {
            assert_eq!(text.parse::<Origin>(), Err(()), "{text:?}");
        }
    }

    #[test]
    fn a_released_object_follows_nobody() {
        let mut pool = json!({"metadata": {"annotations": {TRANSLATED_FROM: "provisioners.karpenter.sh/lab/1"}}});
        assert_eq!(origin(&pool).map(|origin| origin.name), Some("lab".to_owned()));
        pool["metadata"]["annotations"][RELEASED_FROM] = json!("provisioners.karpenter.sh/lab");
        assert!(is_released(&pool));
        assert_eq!(origin(&pool), None);
        assert_eq!(origin(&json!({"metadata": 3})), None);
    }
}
