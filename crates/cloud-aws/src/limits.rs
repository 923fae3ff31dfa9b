//! How long AWS may take, and how much it may answer: what `docs/limits.md` lists for this room.

use std::time::Duration;

/// A connection to AWS or to the proxy before it, encryption included.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The first byte of an answer: a queue that has nothing to say stays silent for 20 s, and a fleet of hundreds takes its time.
pub const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(60);
/// One exchange, to the last byte of its answer.
pub const ATTEMPT_WITHIN: Duration = Duration::from_secs(90);
/// A call, with all repetitions and the waits between them; of a list, one page.
pub const CALL_WITHIN: Duration = Duration::from_secs(180);
/// The first byte of a page of the price list: nothing waits for it but better prices.
pub const PRICES_FIRST_BYTE_WITHIN: Duration = Duration::from_secs(20);
/// A page of the price list, with all repetitions.
pub const PRICES_CALL_WITHIN: Duration = Duration::from_secs(60);
/// Pages of one list: a server that always has one more is broken.
pub const PAGES_MAX: usize = 10_000;
/// Rows of one list. The longest there is, spot prices of a region, has some ten thousand.
pub const ROWS_MAX: usize = 1_000_000;

/// One try to find everything that must be known before the operator starts.
pub const START_TRY_WITHIN: Duration = Duration::from_secs(300);
/// After a try that met trouble which may pass; twice as long after each further one.
pub const START_AGAIN_FIRST: Duration = Duration::from_secs(1);
/// The longest such wait.
pub const START_AGAIN_MOST: Duration = Duration::from_secs(5);
/// Prices, before the operator starts without them: the built-in ones count until they come.
pub const START_PRICES_WITHIN: Duration = Duration::from_secs(10);

/// Claims that share a fleet: an instance says in its tags for which of them it was launched, 32 in a tag, and EC2 gives an
/// instance 50 tags.
pub const FLEET_CLAIMS_MAX: usize = 320;
/// Fleets whose answer was lost, and that are asked for again as they were.
pub const LOST_MAX: usize = 1_000;
/// Older instances are not looked at to find what an earlier process launched for a claim. EC2 shows ended ones for about an hour,
/// and without them it cannot be told whose the others are.
pub const TRACED_FOR: Duration = Duration::from_secs(30 * 60);

/// Bytes of an expression in kubelet settings.
pub const EXPRESSION_BYTES_MAX: usize = 1_024;
/// Operators, brackets and the like in it: each may be a call inside the parser.
pub const EXPRESSION_SYMBOLS_MAX: usize = 256;
/// Brackets within brackets.
pub const EXPRESSION_DEPTH_MAX: usize = 24;
/// Calls within calls, as it is read: evaluating it calls itself for each.
pub const EXPRESSION_TREE_DEPTH_MAX: usize = 100;
/// The stack that it is read and, where it is deep, evaluated on: the parser needs more than the 2 MiB of other threads.
pub const EXPRESSION_STACK_BYTES: usize = 64 << 20;
/// Steps that evaluating it may take, and bytes it may look at, for the worst machine. Every type of the region is asked about.
pub const EXPRESSION_STEPS_MAX: u64 = 5_000;
