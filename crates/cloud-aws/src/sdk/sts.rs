//! STS: who we are, and why we may not.

use super::failure::{incomplete, of};
use crate::wire::{CallerIdentity, Failure};
use aws_sdk_sts::Client;

pub(super) async fn identity(client: &Client) -> Result<CallerIdentity, Failure> {
    let answer = client.get_caller_identity().send().await.map_err(of("sts:GetCallerIdentity"))?;
    Ok(CallerIdentity { account: answer.account.unwrap_or_default(), arn: answer.arn.unwrap_or_default() })
}

pub(super) async fn decode(client: &Client, encoded: String) -> Result<String, Failure> {
    const ACTION: &str = "sts:DecodeAuthorizationMessage";
    let answer = client.decode_authorization_message().encoded_message(encoded).send().await.map_err(of(ACTION))?;
    answer.decoded_message.ok_or_else(|| incomplete(ACTION, "message"))
}
