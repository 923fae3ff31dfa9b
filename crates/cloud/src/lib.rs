//! The socket: what can be bought, where and for how much.
