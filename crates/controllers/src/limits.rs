//! How long anything may take, and how much of it there may be: every deadline and bound of the shell in one table.
//!
//! `docs/limits.md` is made from it. A bound that only one piece of code understands stays there, and that document names it.

use std::fmt::Write as _;
use std::time::Duration;

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub name: &'static str,
    pub value: Value,
    /// What it bounds.
    pub what: &'static str,
    /// Why it is so, and not more or less.
    pub why: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    Time(Duration),
    Count(usize),
}

macro_rules! limits {
    ($($name:ident: $type:ty = $form:ident $value:expr, $what:literal, $why:literal;)*) => {
        $(#[doc = $what] pub const $name: $type = $value;)*
        /// All of them, in the order of the document.
        pub const ALL: &[Limit] =
            &[$(Limit { name: stringify!($name), value: Value::$form($name), what: $what, why: $why },)*];
    };
}

limits! {
    CONNECT_WITHIN: Duration = Time Duration::from_secs(10),
        "A TCP connection to the API server, or to a proxy before it.",
        "As long as client-go's TLS handshake may take; a server that is there answers within milliseconds.";
    KEEPALIVE_AFTER: Duration = Time Duration::from_secs(30),
        "Silence on a connection after which the kernel asks whether the other side is there.",
        "As client-go dials. The client speaks HTTP/1, which has no pings of its own.";
    KEEPALIVE_EVERY: Duration = Time Duration::from_secs(10),
        "Between two such questions.",
        "Three of them without an answer end a connection a minute after its other side has gone.";
    KEEPALIVE_TRIES: usize = Count 3,
        "Such questions without an answer before the connection counts as broken.",
        "As above.";
    UNACKNOWLEDGED: Duration = Time Duration::from_secs(60),
        "What was sent and is not acknowledged by the other side's kernel, before the connection counts as broken.",
        "Linux alone would try for a quarter of an hour.";
    CREDENTIALS_WITHIN: Duration = Time Duration::from_secs(60),
        "A kubeconfig's exec plugin, at start.",
        "Plugins sign in over a network; one that waits for a person waits in vain in a pod.";
    CREDENTIALS_AGAIN: Duration = Time Duration::from_secs(2),
        "Between two readings of credentials that the API server does not accept: a token's file, an exec plugin.",
        "The lease is tried as often, and lost after 10 s: what was replaced is found in time, and a plugin is not run for each request.";
    TOKEN_FILE_EVERY: Duration = Time Duration::from_secs(60),
        "Between two readings of a token's file, accepted or not.",
        "As client-go does. Kubelets replace it when a fifth of its time is left.";
    ANSWER_WITHIN: Duration = Time Duration::from_secs(60),
        "A request to the API server, from its first sending to the last byte of its answer, repetitions and their waits included.",
        "kube-apiserver ends requests of its own after as long.";
    TRIES_MAX: usize = Count 5,
        "How often a request is sent when the server asks to come back later (429, 503 with Retry-After; reads also without).",
        "Whoever ordered it has its own, slower repetition; evictions are never sent twice here.";
    AGAIN_FIRST: Duration = Time Duration::from_millis(500),
        "The first wait before a read is repeated without Retry-After; each further one is twice as long.",
        "Five tries then take 7.5 s.";
    OPEN_WITHIN: Duration = Time Duration::from_secs(30),
        "The head of a watch's answer.",
        "It says nothing yet about objects; kube-apiserver waits up to 3 s for its cache.";
    PAGE_WITHIN: Duration = Time Duration::from_secs(60),
        "One page of a list.",
        "kube-apiserver ends requests that are no watches after as long.";
    BEGINNING_SILENCE: Duration = Time Duration::from_secs(10),
        "Silence in the middle of what a watch shows of what is there; then a list is asked for.",
        "Such a server does not know how to end its beginning.";
    STALE_AFTER: Duration = Time Duration::from_secs(300),
        "Nothing heard of a kind, not even a bookmark, before it counts as stale (`--watch-stale-after`): the operator is not ready, and nothing voluntary begins.",
        "Bookmarks come once a minute; half of it without a word, and the watch is begun anew.";
    WATCH_AGAIN: Duration = Time Duration::from_secs(1),
        "A watch that ended sooner, without a word, is not resumed before.",
        "A server that ends every watch at once would be asked without a pause.";
    RETRY_FIRST: Duration = Time Duration::from_millis(500),
        "After trouble with a watch or list; twice as long after each further one.",
        "Most trouble is over at once.";
    RETRY_MOST: Duration = Time Duration::from_secs(30),
        "The longest such wait.",
        "An API server that comes back is noticed within half a minute.";
    MISSING_RETRY: Duration = Time Duration::from_secs(2),
        "Between two looks for a kind that is not served.",
        "Whoever applies the definition waits for it.";
    LIST_PAGE: usize = Count 500,
        "Objects per page.",
        "As kubectl asks.";
    LIST_PAGES_MAX: usize = Count 4_000,
        "Pages of one list.",
        "Two million objects: a server that always has one more is broken.";
    PAGE_BYTES_MAX: usize = Count 512 << 20,
        "Bytes of one answer that is read as a whole.",
        "500 objects of the largest size that etcd takes would be some more; no real page comes near.";
    EVENT_BYTES_MAX: usize = Count 64 << 20,
        "Bytes of one event of a watch.",
        "etcd takes objects of 1.5 MB.";
    INBOX_MAX: usize = Count 128,
        "Wakes that may wait for the operator. When it is busy, watches are read more slowly.",
        "A pod with everything on it is some 10 KB, so a full inbox is a few megabytes.";
    EVENTS_MAX: usize = Count 10_000,
        "Events that wait to be written. More are left untold, counted and logged; they may be told again later.",
        "Each is a kilobyte or two, and a server that a webhook holds up takes less than one a second.";
    EVENTS_TOLD_MAX: usize = Count 100_000,
        "Events that are remembered as told.",
        "As many as pods of the largest clusters; beyond, one may be told again early.";
    FAILURES_MAX: usize = Count 10_000,
        "Objects for which a duty remembers how often it failed in a row.",
        "Those that are not waited for are forgotten first: mostly they are gone.";
    GRACE: Duration = Time Duration::from_secs(20),
        "What is under way when the process is asked to end.",
        "Less than the 30 s that a pod has.";
    LEASE_LASTS: Duration = Time Duration::from_secs(15),
        "After so long without a sign of life others take the lease.",
        "The contract's.";
    LEASE_RENEW: Duration = Time Duration::from_secs(10),
        "After so long without a renewal, counted from when the last one was sent, its holder stops, and nothing it ordered is sent any more.",
        "The contract's; five seconds before others take over.";
    LEASE_RETRY: Duration = Time Duration::from_secs(2),
        "Between two attempts to get or keep the lease.",
        "The contract's.";
    CLOUD_WITHIN: Duration = Time Duration::from_secs(600),
        "A call to the cloud, batching, throttling and the provider's own repetitions included.",
        "Longer than any provider tries; without an end, a claim whose call hangs would be stuck until a restart.";
    NOTICES_WITHIN: Duration = Time Duration::from_secs(120),
        "Waiting for notices of the cloud.",
        "A long poll takes 20 s.";
    BRAKE_NODES: usize = Count 20,
        "Nodes that may look empty, gone, expired or unclaimed within `BRAKE_WINDOW` before the brake is pulled (`--brake-above-nodes`), if it is more than `BRAKE_PERCENT`.",
        "A small cluster may empty at once, and is soon bought again.";
    BRAKE_PERCENT: usize = Count 30,
        "The same in percent of all nodes.",
        "A pool that scales to nothing is seldom a third of a large cluster; a broken watch is all of it.";
    BRAKE_WINDOW: Duration = Time Duration::from_secs(120),
        "The time over which they are counted.",
        "What goes wrong with our picture goes wrong at once; people and clocks are slower.";
    BRAKE_AGREED: Duration = Time Duration::from_secs(600),
        "How long it counts that a fresh answer agreed about a node.",
        "Budgets may let the nodes go over several minutes.";
    BRAKE_CATCH_UP: Duration = Time Duration::from_secs(5),
        "How far our picture may be behind a fresh list of pods before the two count as contradicting each other.",
        "A watch is milliseconds behind, seconds under load.";
    BRAKE_CLOCK_MAY_DIFFER: Duration = Time Duration::from_secs(10),
        "How far our clock may be ahead of the API server's.",
        "Nobody misses a node ten seconds early; clocks that are kept differ by less.";
    BRAKE_AGAIN_FIRST: Duration = Time Duration::from_secs(10),
        "After an answer that did not agree, until it is asked again; twice as long after each further one.",
        "A list of all pods is not cheap.";
    BRAKE_AGAIN_MOST: Duration = Time Duration::from_secs(300),
        "The longest such wait.",
        "Empty nodes cost money.";
    POISON_FOUND_MAX: usize = Count 8,
        "Kinds of pods that are left out one after the other because a thought panics on them; then it is no pod's fault.",
        "Each costs some fifteen thoughts about parts of the snapshot.";
    POISON_TOLD_MAX: usize = Count 20,
        "Pods that are told of one by one when a panic leaves more out; the others are counted.",
        "Replicas of one workload are one story, and there may be fifty thousand.";
    POISON_KEPT_FIRST: Duration = Time Duration::from_secs(300),
        "How long an object that makes a thought or duty panic is left alone; twice as long each time.",
        "A defect does not mend itself; what makes it show may.";
    POISON_KEPT_MOST: Duration = Time Duration::from_secs(3_600),
        "The longest such time.",
        "A newer object may be better, and trying costs little.";
    WARD_REST_FIRST: Duration = Time Duration::from_secs(10),
        "How long a duty rests that panics whatever it is shown; twice as long each time.",
        "The others go on meanwhile.";
    WARD_REST_MOST: Duration = Time Duration::from_secs(300),
        "The longest such rest.",
        "As above.";
    ORPHAN_DRAINS: Duration = Time Duration::from_secs(900),
        "How long the Node of a machine that no NodeClaim knows may drain before the machine ends.",
        "A NodeClaim could say so; without one, a pod that may not be moved would keep the machine for ever.";
    CLOCK_SLACK: Duration = Time Duration::from_secs(2),
        "The clock may be set back by so much. By more, and all duties begin anew as soon as what is under way has ended.",
        "Whoever waits for a time of before would wait for that much longer.";
    ANEW_WITHIN: Duration = Time Duration::from_secs(20),
        "After the clock was set back, what is under way may take so long to end; then the process ends, and is started again.",
        "Nothing is decided meanwhile, and a spot machine is gone after two minutes. As long as at any other stop.";
    SWEEP_EVERY: Duration = Time Duration::from_secs(600),
        "Every NodeClaim, Node, NodePool and node class is looked at again so often, whether or not something woke anybody.",
        "A mark that was lost would otherwise wait for a restart.";
    SWEEP_PACE: Duration = Time Duration::from_secs(1),
        "Between two parts of such a sweep.",
        "A sweep over ten thousand nodes takes two minutes, and nobody notices.";
    SWEEP_PART: usize = Count 200,
        "Objects of one part.",
        "A few milliseconds.";
    READS_SETTLE: Duration = Time Duration::from_secs(30),
        "How long a claim for which a machine may have been asked is kept while the cloud's lists show none.",
        "EC2's reads are seconds behind its launches; a claim that went sooner would leave a machine without an owner.";
    STALE_AFTER_MOST: Duration = Time Duration::from_secs(600),
        "The longest `--watch-stale-after`.",
        "Half a day without a word would be no limit.";
    UNSEEN_PODS: Duration = Time Duration::from_secs(660),
        "How long a node that is drained waits for the watch to show pods that the API server lists on it.",
        "By then a watch that is silent is stale, however that is set, and is waited for; a pod that cannot be read would hold the node for ever.";
    SHARE_OF_EVICTIONS: usize = Count 4,
        "Evictions may use one in so many of the slots for requests under way, on top of those; events as many.",
        "Admission webhooks may hold each of them for 30 s: no other write waits for that.";
    RATE_OF_EVICTIONS: usize = Count 2,
        "Evictions may use one in so many requests of the client's rate; the others are left to other requests.",
        "Hundreds of pods that a budget holds are asked again and again.";
    PAGES_CONNECTIONS_MAX: usize = Count 64,
        "Connections to one port of the operator's pages. When there is one more, the oldest of the address that has most of them is cut.",
        "A probe always gets in, whoever holds the others open.";
    PAGES_HEAD_WITHIN: Duration = Time Duration::from_secs(5),
        "The head of a request for a page.",
        "Whoever connects and says nothing does not stay.";
    PAGES_WITHIN: Duration = Time Duration::from_secs(30),
        "A connection to a page, from the first byte to the last; there is one request in each.",
        "As long as the chart's probes wait.";
    PAGES_RATE: usize = Count 50,
        "Connections per second from one address to one port, four times as many in a burst.",
        "Scrapers and probes ask a few times a minute; another address is not held up.";
    PAGES_PEERS_MAX: usize = Count 1_024,
        "Addresses whose rate is remembered.",
        "As many as ask within four seconds; then all begin anew.";
    METRICS_FRESH: Duration = Time Duration::from_secs(1),
        "The same page of metrics is handed out again.",
        "However often it is asked for, it is rendered once a second.";
    METRICS_PAGES_MAX: usize = Count 4,
        "Pages of metrics in memory while somebody still reads them; then the latest is handed out however old it is.",
        "A page of a large cluster is megabytes, and readers may be slow on purpose.";
    EXPLAIN_WITHIN: Duration = Time Duration::from_secs(10),
        "The operator's answer to `kerf explain`; one question at a time.",
        "It answers between two moments of its work, and work goes first.";
}

/// The body of `docs/limits.md`.
pub fn document() -> String {
    let mut text = String::from(HEAD);
    for Limit { name, value, what, why } in ALL {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{name}` | {} | {what} | {why} |", shown(*value));
    }
    text.push_str(TAIL);
    for (file, name, what) in ELSEWHERE {
        // As above.
        let _ = writeln!(text, "| `{file}` | `{name}` | {what} |");
    }
    text
}

fn shown(value: Value) -> String {
    match value {
        Value::Count(count) => count.to_string(),
        Value::Time(time) if time.subsec_millis() > 0 => format!("{} ms", time.as_millis()),
        Value::Time(time) if time.as_secs() >= 120 && time.as_secs().is_multiple_of(60) => {
            format!("{} min", time.as_secs() / 60)
        }
        Value::Time(time) => format!("{} s", time.as_secs()),
    }
}

const HEAD: &str = "# Deadlines and bounds

Every request, list, watch, cloud call and page ends, and everything that is held has a bound. Two have none yet: the bytes of an answer of
AWS's, which the SDK holds whole; and an exec plugin of the kubeconfig that hangs after the start, when its credentials are to be renewed: whoever
waits for them waits a minute at most, and the library starts it again for later requests. In a pod there is no such plugin. The first table is made from
`crates/controllers/src/limits.rs`: `KERF_WRITE_DOCS=1 cargo test -p kerf-controllers --test limits`.

| name | value | what it bounds | why so |
|---|---|---|---|
";

const TAIL: &str = "
These stand beside the one piece of code that understands them:

| where | name | what it bounds |
|---|---|---|
";

/// Bounds that stand beside the one piece of code that understands them: its file under `crates`, its name, and what it bounds.
pub const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "controllers/src/termination/eviction.rs",
        "IN_FLIGHT_MAX",
        "Evictions that are ordered at a time, whether or not they have a slot.",
    ),
    ("controllers/src/termination/eviction.rs", "BACKOFF_MS", "Waits between two evictions of one pod."),
    ("controllers/src/lifecycle/liveness.rs", "LAUNCH_MS", "A NodeClaim until its machine is launched."),
    ("controllers/src/lifecycle/liveness.rs", "REGISTRATION_MS", "A machine until its node has joined."),
    (
        "controllers/src/disruption/commands.rs",
        "TIMEOUT_MS",
        "A disruption command: the least, the most, and what each node that waits adds.",
    ),
    (
        "controllers/src/provisioning/mod.rs",
        "UNANSWERED_MAX",
        "Tries to create a NodeClaim of which nobody knows whether it is there.",
    ),
    ("controllers/src/termination/drain.rs", "STUCK_AFTER_MS", "Waiting for a pod that should have been gone."),
    (
        "controllers/src/interruption/guests.rs",
        "PATIENCE_MS",
        "A drain of a node that is not ours, where the notice does not say.",
    ),
    (
        "controllers/src/interruption/replace.rs",
        "WAIT_MS",
        "Pods that wait for their new place, before their machine at risk is kept.",
    ),
    ("controllers/src/classes/mod.rs", "NAMED_MAX", "NodeClaims named in an event."),
    (
        "controllers/src/pools/registration_health.rs",
        "FAILURES_MAX",
        "Failures among a pool's last nodes, before it counts as unhealthy.",
    ),
    ("controllers/src/claims.rs", "POOL_MAX", "Letters of a pool's name in those of its NodeClaims."),
    ("controllers/src/shell/health.rs", "LOOK_EVERY", "Between two looks for definitions that are not there yet."),
    ("cli/src/explain/ask.rs", "LAST_WORD_WITHIN", "A word about why a port cannot be forwarded."),
    ("cli/src/explain/invitation.rs", "KNOCK_WITHIN", "Finding out whether anybody listens on a port of this machine."),
    ("cli/src/up/view.rs", "NODES_MAX", "Rows of nodes that `kerf up` shows."),
    ("cli/src/up/view.rs", "PENDING_MAX", "Rows of pods that wait."),
    ("cloud-aws/src/cloud.rs", "LAUNCH_REMEMBERED_MS", "How long this process knows whom it launched what for."),
    ("cloud-aws/src/instances.rs", "READS_LAG_MS", "EC2 does not know what it has launched."),
    (
        "cloud-aws/src/interruption/queue.rs",
        "ACTIONS_MAX",
        "Lifecycle actions of Auto Scaling groups that wait for leave.",
    ),
    ("cloud-aws/src/bootstrap.rs", "USER_DATA_BYTES_MAX", "Bytes of user data: what EC2 takes."),
    ("cloud-aws/src/chores/reservations.rs", "FILTER_MAX", "Values of an EC2 filter: what EC2 takes."),
    ("cloud-aws/src/classes/images/parameters.rs", "IDS_MAX", "Images in one question: what EC2 takes."),
    ("cloud-aws/src/classes/profiles.rs", "NAME_MAX", "Letters of an instance profile's name: what IAM takes."),
    ("cloud-aws/src/classes/terms.rs", "NAMED_MAX", "Values of a tag named in a message."),
    ("cloud-aws/src/launch/filters.rs", "TYPES_MAX", "Instance types in one CreateFleet."),
    ("cloud-aws/src/sdk/sqs.rs", "BATCH_MAX", "Messages in one request: what SQS takes."),
    (
        "cloud-aws/src/supply/cost.rs",
        "MACRO_DEPTH_MAX",
        "Macros over lists within each other, in an expression in kubelet settings.",
    ),
    ("controllers/src/operator.rs", "ROUNDS_MAX", "Rounds of duties that give each other work, without a pause."),
    ("controllers/src/shell/seat.rs", "BATCHES_MAX", "Batches of wakes before the operator looks at the cluster."),
    (
        "controllers/src/world.rs",
        "GONE_MAX",
        "Deleted objects that are remembered, lest a late answer bring them back.",
    ),
    ("controllers/src/record.rs", "DECISIONS_MAX", "Decisions kept for `kerf explain`."),
    ("controllers/src/record.rs", "PODS_MAX", "Pods in them."),
    ("controllers/src/record.rs", "LEFT_OUT_MAX", "Pods kept for it that were left out before planning."),
    ("controllers/src/events.rs", "MESSAGE_MAX", "Bytes of an event's message."),
    ("cli/src/explain/ask.rs", "ANSWER_WITHIN", "All of `kerf explain`, once there are credentials."),
    ("cli/src/explain/ask.rs", "ANSWER_BYTES_MAX", "Bytes of the operator's answer to it."),
    ("controllers/src/interruption/post.rs", "CASES_MAX", "Interruptions under way."),
    ("controllers/src/interruption/post.rs", "HANDLED_MAX", "Messages remembered as handled."),
    ("controllers/src/interruption/post.rs", "ACKNOWLEDGE_TRIES_MAX", "Tries to delete a message."),
    ("controllers/src/interruption/replace.rs", "AT_ONCE_MAX", "Machines at risk that are replaced at a time."),
    ("controllers/src/tagging.rs", "IN_FLIGHT_MAX", "Machines that are labelled in the cloud at a time."),
    (
        "controllers/src/pools/registration_health.rs",
        "NEWS_MAX",
        "Fates of a pool's nodes that wait for the pool to be looked at.",
    ),
    ("controllers/src/early_binding.rs", "FENCE_MAX_MS", "A new node that is kept for the pods promised to it."),
    ("controllers/src/lifecycle/release.rs", "PATIENCE_MS", "Waiting for the cloud to say whose a machine is."),
    ("mirror/src/wire.rs", "FRAME_MAX", "Bytes of one frame of protocol buffers."),
    ("engine/src/relax.rs", "MAX_STEPS", "Preferences that are given up, one after the other."),
    ("engine/src/judge.rs", "MAX_LOOKS", "Looks at a node while a plan is judged."),
    ("cloud-sim/src/kwok.rs", "GIVE_UP_AFTER", "A kwok node that cannot be created."),
    ("cloud-sim/src/kwok.rs", "ENDED_MAX", "Ended kwok nodes that are remembered."),
    ("cli/src/up/mod.rs", "IN_FLIGHT_MAX", "Requests of the operator under way in `kerf up`."),
    ("control-plane/src/serve.rs", "STRANGER_WITHIN", "A connection to `kerf up` on which nobody shows a token."),
    ("control-plane/src/serve.rs", "BODY_WITHIN", "The body of a request to it."),
    ("control-plane/src/serve.rs", "CONNECTIONS_MAX", "Connections to it at a time."),
    ("control-plane/src/service.rs", "BODY_MAX_BYTES", "Bytes of such a body."),
    ("control-plane/src/service.rs", "WATCH_ENDS_AFTER", "A watch whose client does not say how long."),
    ("control-plane/src/patch/operations.rs", "MOST_OPERATIONS", "Operations of a JSON patch."),
    ("control-plane/src/patch/operations.rs", "COPIED_BYTES_MAX", "What they may copy, all together."),
    ("control-plane/src/rest/pods.rs", "TOKENS_MAX", "Tokens of service accounts that are known."),
    ("control-plane/src/expiry.rs", "EVENTS_MAX", "Events that are kept."),
    ("control-plane/src/store.rs", "LOG_MAX", "Changes of a kind that watches may go back to."),
    ("control-plane/src/custom/rules.rs", "OBJECT_STEPS_MAX", "Steps of an object's CEL rules."),
    ("cloud-aws/src/limits.rs", "CONNECT_WITHIN", "5 s: a connection to AWS or to the proxy before it."),
    ("cloud-aws/src/limits.rs", "FIRST_BYTE_WITHIN", "60 s: the first byte of AWS's answer; a long poll takes 20 s."),
    ("cloud-aws/src/limits.rs", "ATTEMPT_WITHIN", "90 s: one exchange with AWS."),
    ("cloud-aws/src/limits.rs", "CALL_WITHIN", "3 min: a call to AWS with all repetitions; of a list, one page."),
    ("cloud-aws/src/limits.rs", "PRICES_FIRST_BYTE_WITHIN", "20 s: the first byte of a page of the price list."),
    ("cloud-aws/src/limits.rs", "PRICES_CALL_WITHIN", "60 s: a page of the price list with all repetitions."),
    ("cloud-aws/src/limits.rs", "PAGES_MAX", "10000 pages of one list of AWS's."),
    ("cloud-aws/src/limits.rs", "ROWS_MAX", "1000000 rows of one list of AWS's."),
    ("cloud-aws/src/limits.rs", "START_TRY_WITHIN", "5 min: one try to find in AWS what a start needs; then another."),
    ("cloud-aws/src/limits.rs", "START_AGAIN_FIRST", "1 s: before the next such try; twice as long after each."),
    ("cloud-aws/src/limits.rs", "START_AGAIN_MOST", "5 s: the longest such wait."),
    ("cloud-aws/src/limits.rs", "START_PRICES_WITHIN", "10 s: prices at a start, before the built-in ones count."),
    ("cloud-aws/src/limits.rs", "FLEET_CLAIMS_MAX", "320 NodeClaims that share a CreateFleet."),
    ("cloud-aws/src/limits.rs", "LOST_MAX", "1000 CreateFleets without an answer that are kept to be asked for again."),
    (
        "cloud-aws/src/limits.rs",
        "TRACED_FOR",
        "30 min: how old an instance may be that an earlier process launched for a NodeClaim.",
    ),
    ("cloud-aws/src/limits.rs", "EXPRESSION_BYTES_MAX", "1024 bytes of an expression in kubelet settings."),
    ("cloud-aws/src/limits.rs", "EXPRESSION_SYMBOLS_MAX", "256 operators, brackets and the like in it."),
    ("cloud-aws/src/limits.rs", "EXPRESSION_DEPTH_MAX", "24 brackets within brackets."),
    ("cloud-aws/src/limits.rs", "EXPRESSION_TREE_DEPTH_MAX", "100 calls within calls, as it is read."),
    ("cloud-aws/src/limits.rs", "EXPRESSION_STACK_BYTES", "64 MiB of stack to read it on, on a thread of its own."),
    (
        "cloud-aws/src/limits.rs",
        "EXPRESSION_STEPS_MAX",
        "5000 steps that evaluating it may take, told before it is begun.",
    ),
    ("cloud-aws/src/batch.rs", "RUNNING_MAX", "Joined calls to EC2 under way."),
    ("cloud-aws/src/launch.rs", "ROUNDS_MAX", "Fleets that are tried for one claim."),
    ("cloud-aws/src/tally.rs", "KEPT_MAX", "Durations of calls kept for metrics."),
];
