//! The front door: CRD types, defaults, validation, schema generation.
