//! A flood of notices through a real queue, with duplicates, with garbage, and with a crash in the middle of it.

use std::time::Instant;

use crate::Test;
use crate::manifests::{deployment, node_class, node_pool, spot_interruption};
use crate::stage::{CLUSTER, NODE_POOLS, Needs, Stage, is_true};

pub(crate) const TESTS: &[Test] = &[Test {
    name: "a_thousand_notices_with_duplicates_and_garbage_are_handled_once_each_across_a_crash",
    needs: Needs::Embedded,
    body: flood,
}];

const N_MACHINES: usize = 10;
const N_MESSAGES: usize = 1_000;

fn flood(stage: &mut Stage) {
    stage.start_operator();
    stage.apply(&[node_class(CLUSTER), node_pool("default", &["spot"])]);
    stage.wait_for("the pool to be ready", || is_true(&stage.read(&format!("{NODE_POOLS}/default")), "Ready"));
    stage.apply(&[deployment("inflate", "default", N_MACHINES, true)]);
    stage.wait_until_running("inflate", N_MACHINES);
    let queue = stage.prepared.queue_url.clone();

    // Half of the flood finds no operator; it starts in the middle of it, and dies once it has begun to work.
    let ours: Vec<String> = stage.machines().into_iter().map(|machine| machine.id).collect();
    stage.kill_operator();
    let messages = messages(&ours);
    let (first, second) = messages.split_at(N_MESSAGES / 2);
    send(stage, &queue, first);
    stage.start_operator();
    stage
        .wait_for("the operator to take messages", || stage.account.n_messages(&queue).unwrap().0 < first.len() as u64);
    stage.kill_operator();
    stage.start_operator();
    send(stage, &queue, second);
    let began = Instant::now();
    stage.wait_for("the queue to be empty", || stage.account.n_messages(&queue).unwrap() == (0, 0));
    // Told, not judged: how long it takes is a matter of the machine and of the emulator.
    println!("aws interruption: the queue was empty {:.1} s after the last message", began.elapsed().as_secs_f64());

    // Every machine that was told of has gone, and each was replaced once: as many as before.
    stage.wait_for("every interrupted machine to be replaced", || {
        let machines = stage.machines();
        machines.iter().all(|machine| !ours.contains(&machine.id)) && stage.n_running("inflate") == N_MACHINES
    });
    stage
        .wait_for("no machine too many", || (stage.machines().len(), stage.claims().len()) == (N_MACHINES, N_MACHINES));
    let n_deleted = stage.operator().metric("karpenter_interruption_deleted_messages_total", &[]);
    assert!(n_deleted >= second.len() as f64, "{n_deleted}");
    stage.leave_nothing();
}

/// One in ten is a copy of the one before, one in twenty is garbage; the rest is about machines of ours and of others.
fn messages(ours: &[String]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for index in 0..N_MESSAGES {
        let message = match index % 20 {
            7 => ["{", "", "null", "[1,2]", "{\"version\":\"0\",\"detail\":7}", "not JSON at all"][index / 20 % 6]
                .to_owned(),
            3 | 13 => out[index - 1].clone(),
            _ if index % 2 == 0 => spot_interruption(&ours[index / 2 % ours.len()], &format!("ours-{index}")),
            _ => spot_interruption(&format!("i-{index:017x}"), &format!("others-{index}")),
        };
        // A queue takes no empty message.
        out.push(if message.is_empty() { " ".to_owned() } else { message });
    }
    out
}

fn send(stage: &Stage, queue: &str, messages: &[String]) {
    for ten in messages.chunks(10) {
        stage.account.send(queue, ten).unwrap();
    }
}
