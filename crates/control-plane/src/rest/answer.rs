//! What goes back: bytes, or a watch.

use bytes::Bytes;
use serde_json::Value;

use super::Call;
use super::watch::Watch;
use crate::error::{ApiError, ApiResult};

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub body: Body,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

#[derive(Debug)]
pub enum Body {
    Whole(Bytes),
    /// Pieces that are sent one after the other: a long list shares the bytes of its objects.
    Pieces(Vec<Bytes>),
    /// Goes on until the client leaves or the time is up.
    Watch(Box<Watch>),
}

impl Answer {
    #[must_use]
    pub fn json(status: u16, document: &Value) -> Self {
        Self::bytes(status, Bytes::from(document.to_string()))
    }

    #[must_use]
    pub fn bytes(status: u16, json: Bytes) -> Self {
        Self { status, content_type: "application/json".to_owned(), body: Body::Whole(json), warnings: Vec::new() }
    }

    #[must_use]
    pub fn refusal(error: &ApiError) -> Self {
        Self::json(error.code, &error.to_status())
    }

    #[must_use]
    pub fn of_type(mut self, content_type: &str) -> Self {
        content_type.clone_into(&mut self.content_type);
        self
    }

    #[must_use]
    pub fn warning(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    /// The whole JSON body. Null for a watch.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match &self.body {
            Body::Whole(bytes) => serde_json::from_slice(bytes).unwrap_or_default(),
            Body::Pieces(pieces) => serde_json::from_slice(&pieces.concat()).unwrap_or_default(),
            Body::Watch(_) => Value::Null,
        }
    }
}

/// In which form the client wants objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    Yaml,
    Table,
    /// `PartialObjectMetadata`, or a list of them.
    Metadata,
}

/// The first form in `Accept` that we can give.
#[must_use]
pub fn form(accept: &str) -> Option<Form> {
    if accept.trim().is_empty() {
        return Some(Form::Json);
    }
    accept.split(',').find_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let is_json = matches!(media, "application/json" | "application/*" | "*/*");
        match (is_json, media, parameter("as")) {
            (true, _, None) => Some(Form::Json),
            (true, _, Some("Table")) if parameter("g") == Some("meta.k8s.io") && parameter("v") == Some("v1") => {
                Some(Form::Table)
            }
            (true, _, Some("PartialObjectMetadata" | "PartialObjectMetadataList"))
                if parameter("g") == Some("meta.k8s.io") =>
            {
                Some(Form::Metadata)
            }
            (false, "application/yaml", None) => Some(Form::Yaml),
            _ => None,
        }
    })
}

/// Refuses what we cannot give, before anything is done.
pub(crate) fn check_accept(accept: &str) -> ApiResult<()> {
    if form(accept).is_some() {
        return Ok(());
    }
    Err(ApiError::new(
        406,
        "NotAcceptable",
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf",
    ))
}

/// What a table shall bring along.
pub(crate) fn check_include(call: &Call<'_>) -> ApiResult<()> {
    let include = call.query.get("includeObject");
    if form(&call.request.accept) != Some(Form::Table) || matches!(include, "" | "None" | "Metadata" | "Object") {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "Unable to convert to Table as requested: includeObject: Invalid value: \"{include}\": must be 'Metadata', \
         'Object', 'None', or empty"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_given_is() {
        for (accept, wanted) in [
            ("", Some(Form::Json)),
            ("*/*", Some(Form::Json)),
            ("application/json", Some(Form::Json)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Form::Table)),
            ("application/json;as=Table;v=v1beta9;g=meta.k8s.io,application/json", Some(Form::Json)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Form::Json)),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Form::Metadata)),
            ("application/yaml", Some(Form::Yaml)),
            ("application/vnd.kubernetes.protobuf", None),
            ("text/html", None),
        ] {
            assert_eq!(form(accept), wanted, "{accept}");
        }
    }
}
