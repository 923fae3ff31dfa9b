//! Two small machines: one makes a Kubernetes object out of a spec and a status, one makes an open choice out of a list
//! of words.

/// Makes the object type `$Name { metadata, spec, status }` with everything a Kubernetes client needs.
///
/// Writing puts `apiVersion` and `kind` first. Reading accepts an object without them (an item of a list has none in
/// some dumps), and refuses one that says it is something else. `spec: required` refuses an object without a spec;
/// `spec: optional` reads it as the empty one, for kinds that an API server may have stored without.
macro_rules! kubernetes_object {
    (
        $(#[$doc:meta])*
        $Name:ident { kind: $kind:literal, group: $group:literal, version: $version:literal, plural: $plural:literal,
                      scope: $Scope:ty,
                      spec: $presence:ident $Spec:ty, status: $Status:ty }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $Name {
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            pub spec: $Spec,
            pub status: Option<$Status>,
        }

        impl k8s_openapi::Resource for $Name {
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const GROUP: &'static str = $group;
            const KIND: &'static str = $kind;
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = $Scope;
        }

        impl k8s_openapi::ListableResource for $Name {
            const LIST_KIND: &'static str = concat!($kind, "List");
        }

        impl k8s_openapi::Metadata for $Name {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }

        impl serde::Serialize for $Name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;
                let mut object = serializer.serialize_struct($kind, 4 + usize::from(self.status.is_some()))?;
                object.serialize_field("apiVersion", <Self as k8s_openapi::Resource>::API_VERSION)?;
                object.serialize_field("kind", <Self as k8s_openapi::Resource>::KIND)?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                if let Some(status) = &self.status {
                    object.serialize_field("status", status)?;
                }
                object.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $Name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(serde::Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Raw {
                    api_version: Option<String>,
                    kind: Option<String>,
                    #[serde(default)]
                    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                    spec: Option<$Spec>,
                    status: Option<$Status>,
                }
                use serde::de::Error as _;
                let raw = Raw::deserialize(deserializer)?;
                let ours = (<Self as k8s_openapi::Resource>::API_VERSION, <Self as k8s_openapi::Resource>::KIND);
                let theirs = (raw.api_version.as_deref().unwrap_or(ours.0), raw.kind.as_deref().unwrap_or(ours.1));
                if theirs != ours {
                    let message = format!("expected {} {}, found {} {}", ours.0, ours.1, theirs.0, theirs.1);
                    return Err(D::Error::custom(message));
                }
                let spec = kubernetes_object!(@spec $presence raw.spec, D);
                Ok(Self { metadata: raw.metadata, spec, status: raw.status })
            }
        }
    };
    (@spec required $spec:expr, $D:ident) => {
        $spec.ok_or_else(|| $D::Error::missing_field("spec"))?
    };
    (@spec optional $spec:expr, $D:ident) => {
        $spec.unwrap_or_default()
    };
}

/// Makes an enum whose variants are words on the wire, open at the end: an unknown word is kept in `Other`.
///
/// `WORDS` lists the known ones in schema order, so the schema's `enum` and the type cannot drift apart.
macro_rules! choice {
    (
        $(#[$doc:meta])*
        $Name:ident { $( $(#[$variant_doc:meta])* $Variant:ident = $word:literal, )+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $Name {
            $( $(#[$variant_doc])* $Variant, )+
            /// A word this version does not know. The schema refuses it; we can still read an object that carries it.
            Other(String),
        }

        impl $Name {
            /// The known words, in schema order.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$Variant => $word, )+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $Name {
            fn from(word: &str) -> Self {
                match word {
                    $( $word => Self::$Variant, )+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $Name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $Name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                Ok(Self::from(word.as_ref()))
            }
        }
    };
}
