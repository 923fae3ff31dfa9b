//! The window: Kubernetes objects in, frozen Snapshots out.
