//! Auto Scaling: leave to end an instance that waits for it.

use super::failure::of;
use crate::wire::{Failure, LifecycleAction};
use aws_sdk_autoscaling::Client;

pub(super) async fn complete(client: &Client, action: LifecycleAction) -> Result<(), Failure> {
    let answer = client
        .complete_lifecycle_action()
        .auto_scaling_group_name(action.group)
        .lifecycle_hook_name(action.hook)
        .lifecycle_action_token(action.token)
        .lifecycle_action_result("CONTINUE")
        .instance_id(action.instance_id)
        .send()
        .await;
    answer.map(drop).map_err(of("autoscaling:CompleteLifecycleAction"))
}
