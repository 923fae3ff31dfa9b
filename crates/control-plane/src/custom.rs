//! CustomResourceDefinitions.

/// One served version of a custom resource, compiled.
#[derive(Debug)]
pub struct CustomVersion {}
