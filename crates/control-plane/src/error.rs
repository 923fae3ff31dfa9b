//! What the server says when it says no: `Status` objects and field errors, with the codes, reasons and wording clients read.

use std::fmt;

use serde_json::{Map, Value, json};

/// A refused request. Becomes a `Status` of `status: Failure`.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub code: u16,
    /// `NotFound`, `Conflict`, `Invalid`… Empty where the real server leaves it out.
    pub reason: &'static str,
    pub message: String,
    pub details: Box<Details>,
    /// Where a list that grew too old may go on.
    pub continue_token: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    pub name: String,
    pub group: String,
    /// The kind for `Invalid`, the plural resource for most others, as the real server has it.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    pub reason: &'static str,
    pub message: String,
    pub field: String,
}

pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Box::default(), continue_token: String::new() }
    }

    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// `pods "web" not found`.
    #[must_use]
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", qualified(group, plural)))
            .about(group, plural, name)
    }

    /// A path that nothing serves.
    #[must_use]
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    #[must_use]
    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", qualified(group, plural)))
            .about(group, plural, name)
    }

    /// `Operation cannot be fulfilled on pods "web": …`.
    #[must_use]
    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, plural)),
        )
        .about(group, plural, name)
    }

    #[must_use]
    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        Self::new(403, "Forbidden", format!("{} \"{name}\" is forbidden: {why}", qualified(group, plural)))
            .about(group, plural, name)
    }

    /// `Pod "web" is invalid: …`, with a cause for each error.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        // What is found twice is told once, and keeps both its causes.
        let mut said: Vec<String> = Vec::new();
        for text in errors.iter().map(ToString::to_string) {
            if !said.contains(&text) {
                said.push(text);
            }
        }
        let list = match said.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = Self::new(422, "Invalid", format!("{} \"{name}\" is invalid: {list}", qualified(group, kind)))
            .about(group, kind, name);
        error.details.causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.kind.reason(),
                message: error.without_field(),
                field: error.field.clone(),
            })
            .collect();
        error
    }

    #[must_use]
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.details.group = group.to_owned();
        self.details.kind = kind.to_owned();
        self.details.name = name.to_owned();
        self
    }

    #[must_use]
    pub fn cause(mut self, reason: &'static str, message: impl Into<String>, field: &str) -> Self {
        self.details.causes.push(Cause { reason, message: message.into(), field: field.to_owned() });
        self
    }

    /// The `Status` object.
    #[must_use]
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.continue_token.is_empty() {
            status["metadata"] = json!({ "continue": self.continue_token });
        }
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if *self.details != Details::default() {
            status["details"] = self.details.to_json();
        } else if self.reason == "NotFound" || self.reason == "Invalid" {
            status["details"] = json!({});
        }
        status
    }
}

impl Details {
    fn to_json(&self) -> Value {
        let mut details = Map::new();
        let mut put = |key: &str, text: &str| {
            if !text.is_empty() {
                details.insert(key.to_owned(), json!(text));
            }
        };
        put("name", &self.name);
        put("group", &self.group);
        put("kind", &self.kind);
        put("uid", &self.uid);
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut entry = json!({ "reason": cause.reason, "message": cause.message });
                if !cause.field.is_empty() {
                    entry["field"] = json!(cause.field);
                }
                entry
            });
            details.insert("causes".to_owned(), causes.collect());
        }
        if self.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".to_owned(), json!(self.retry_after_seconds));
        }
        Value::Object(details)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for ApiError {}

/// `deployments.apps`, or `pods` in the core group.
#[must_use]
pub fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    /// `spec.containers[0].image`.
    pub field: String,
    /// What was found. Shown for `Invalid`, `NotSupported`, `Duplicate`, `NotFound`, `TypeInvalid` and `TooMany`.
    pub found: Value,
    /// The text of what was found, where its own JSON would have its fields in another order than the real server's.
    pub shown: Option<String>,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    Required,
    Invalid,
    /// Invalid, where what was found is too large to show.
    InvalidUnshown,
    TypeInvalid,
    NotSupported,
    Duplicate,
    Forbidden,
    TooLong,
    TooMany,
    NotFound,
    Internal,
}

impl FieldErrorKind {
    /// The cause's reason.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid | Self::InvalidUnshown => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::InvalidUnshown | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }
}

impl FieldError {
    #[must_use]
    pub fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        found: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, field: field.into(), found: found.into(), shown: None, detail: detail.into() }
    }

    #[must_use]
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, Value::Null, detail)
    }

    #[must_use]
    pub fn invalid(field: impl Into<String>, found: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, found, detail)
    }

    #[must_use]
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, Value::Null, detail)
    }

    #[must_use]
    pub fn duplicate(field: impl Into<String>, found: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, found, "")
    }

    /// `Unsupported value: "x": supported values: "a", "b"`.
    #[must_use]
    pub fn not_supported(field: impl Into<String>, found: impl Into<Value>, supported: &[&str]) -> Self {
        let listed: Vec<String> = supported.iter().map(|value| format!("\"{value}\"")).collect();
        Self::new(FieldErrorKind::NotSupported, field, found, format!("supported values: {}", listed.join(", ")))
    }

    /// `Invalid value: …`: what a cause's message has; the field stands beside it.
    #[must_use]
    pub fn without_field(&self) -> String {
        let shows_found = !matches!(
            self.kind,
            FieldErrorKind::Required
                | FieldErrorKind::Forbidden
                | FieldErrorKind::TooLong
                | FieldErrorKind::Internal
                | FieldErrorKind::InvalidUnshown
        );
        // How many is too many is shown where it is known, and so is what there is twice.
        let is_unknown =
            matches!(self.kind, FieldErrorKind::TooMany | FieldErrorKind::Duplicate) && self.found.is_null();
        let mut text = self.kind.words().to_owned();
        if shows_found && !is_unknown {
            text.push_str(": ");
            match &self.shown {
                Some(said) => text.push_str(said),
                None => text.push_str(&shown(&self.found)),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

/// As Go shows it: within lists and objects, characters that mean something in HTML are escaped.
fn shown(found: &Value) -> String {
    let text = found.to_string();
    match found {
        Value::Array(_) | Value::Object(_) => {
            text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
        }
        _ => text,
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An object as a whole has no path.
        let field = if self.field.is_empty() { "[]" } else { self.field.as_str() };
        write!(f, "{field}: {}", self.without_field())
    }
}
