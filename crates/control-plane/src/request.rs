//! A request: what came over the wire, and what it asks for.

use bytes::Bytes;

use crate::error::ApiError;

/// What came over the wire, or from within the process.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `GET`, `POST`…
    pub method: String,
    pub path: String,
    /// Without the question mark.
    pub query: String,
    pub accept: String,
    pub content_type: String,
    pub user_agent: String,
    pub body: Bytes,
}

/// What a path names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub plural: String,
    /// Empty for the collection.
    pub name: String,
    /// Empty for the object itself.
    pub subresource: String,
}

impl Target {
    /// Reads `/apis/apps/v1/namespaces/default/deployments/web/scale`. None when the path has another shape.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let segments: Vec<String> = path
            .split('/')
            .skip(1)
            .map(|segment| percent_encoding::percent_decode_str(segment).decode_utf8().map(|text| text.into_owned()))
            .collect::<Result<_, _>>()
            .ok()?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        // A trailing slash names the same thing.
        let rest = match rest {
            [rest @ .., ""] => rest,
            rest => rest,
        };
        let (namespace, plural, name, subresource) = match rest {
            ["namespaces", name, sub @ ("status" | "finalize")] if group.is_empty() => ("", "namespaces", *name, *sub),
            ["namespaces", namespace, plural] => (*namespace, *plural, "", ""),
            ["namespaces", namespace, plural, name] => (*namespace, *plural, *name, ""),
            ["namespaces", namespace, plural, name, sub] => (*namespace, *plural, *name, *sub),
            [plural] => ("", *plural, "", ""),
            [plural, name] => ("", *plural, *name, ""),
            [plural, name, sub] => ("", *plural, *name, *sub),
            _ => return None,
        };
        if plural.is_empty() {
            return None;
        }
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            plural: plural.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
        })
    }
}

/// The query of a request, read once.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    #[must_use]
    pub fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
    }

    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A switch is on when it is there and does not say no.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.has(name) && !matches!(self.get(name), "0" | "false" | "False" | "FALSE" | "f" | "F")
    }

    pub fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        Target::parse(path).map_or_else(
            || "none".to_owned(),
            |target| {
                [target.group, target.version, target.namespace, target.plural, target.name, target.subresource]
                    .join("|")
            },
        )
    }

    #[test]
    fn paths_name_collections_objects_and_subresources() {
        for (path, told) in [
            ("/api/v1/pods", "|v1||pods||"),
            ("/api/v1/namespaces", "|v1||namespaces||"),
            ("/api/v1/namespaces/a", "|v1||namespaces|a|"),
            ("/api/v1/namespaces/a/status", "|v1||namespaces|a|status"),
            ("/api/v1/namespaces/a/finalize", "|v1||namespaces|a|finalize"),
            ("/api/v1/namespaces/a/pods", "|v1|a|pods||"),
            ("/api/v1/namespaces/a/pods/b/eviction", "|v1|a|pods|b|eviction"),
            ("/apis/apps/v1/namespaces/a/deployments/b", "apps|v1|a|deployments|b|"),
            ("/apis/karpenter.sh/v1/nodepools/a/status", "karpenter.sh|v1||nodepools|a|status"),
            ("/api/v1/nodes/a%2Fb", "|v1||nodes|a/b|"),
            ("/api/v1", "none"),
            ("/apis/apps", "none"),
            ("/healthz", "none"),
            ("/api/v1/namespaces/a/pods/b/c/d", "none"),
        ] {
            assert_eq!(read(path), told, "{path}");
        }
    }

    #[test]
    fn a_switch_is_on_when_it_is_there_and_does_not_say_no() {
        let query = Query::parse("watch&a=false&b=true&limit=5&bad=x");
        assert!(query.flag("watch") && query.flag("b") && !query.flag("a") && !query.flag("absent"));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert!(query.number("bad").is_err());
    }
}
