//! Systems Manager: where AWS publishes its images.

use super::failure::{incomplete, of};
use crate::wire::Failure;
use aws_sdk_ssm::Client;

pub(super) async fn parameter(client: &Client, name: String) -> Result<String, Failure> {
    const ACTION: &str = "ssm:GetParameter";
    let answer = client.get_parameter().name(name).send().await.map_err(of(ACTION))?;
    answer.parameter.and_then(|it| it.value).ok_or_else(|| incomplete(ACTION, "value"))
}
