//! IAM: instance profiles, and roles by name.

use super::failure::{incomplete, of};
use super::listed::Listed;
use crate::wire::{Failure, InstanceProfile, ProfileOrder, Tags};
use aws_sdk_iam::Client;
use aws_sdk_iam::types;

pub(super) async fn get(client: &Client, name: String) -> Result<InstanceProfile, Failure> {
    const ACTION: &str = "iam:GetInstanceProfile";
    let answer = client.get_instance_profile().instance_profile_name(name).send().await.map_err(of(ACTION))?;
    answer.instance_profile.map(profile).ok_or_else(|| incomplete(ACTION, "instance profile"))
}

pub(super) async fn create(client: &Client, order: ProfileOrder) -> Result<(), Failure> {
    const ACTION: &str = "iam:CreateInstanceProfile";
    let mut call = client.create_instance_profile().instance_profile_name(order.name).path(order.path);
    for (key, value) in &order.tags {
        let tag = types::Tag::builder().key(key).value(value).build();
        call = call.tags(tag.map_err(|error| incomplete(ACTION, &error.to_string()))?);
    }
    call.send().await.map(drop).map_err(of(ACTION))
}

pub(super) async fn delete(client: &Client, name: String) -> Result<(), Failure> {
    let answer = client.delete_instance_profile().instance_profile_name(name).send().await;
    answer.map(drop).map_err(of("iam:DeleteInstanceProfile"))
}

pub(super) async fn add_role(client: &Client, name: String, role: String) -> Result<(), Failure> {
    let answer = client.add_role_to_instance_profile().instance_profile_name(name).role_name(role).send().await;
    answer.map(drop).map_err(of("iam:AddRoleToInstanceProfile"))
}

pub(super) async fn remove_role(client: &Client, name: String, role: String) -> Result<(), Failure> {
    let answer = client.remove_role_from_instance_profile().instance_profile_name(name).role_name(role).send().await;
    answer.map(drop).map_err(of("iam:RemoveRoleFromInstanceProfile"))
}

/// The role's ARN.
pub(super) async fn role(client: &Client, name: String) -> Result<String, Failure> {
    const ACTION: &str = "iam:GetRole";
    let answer = client.get_role().role_name(name).send().await.map_err(of(ACTION))?;
    answer.role.map(|role| role.arn).ok_or_else(|| incomplete(ACTION, "role"))
}

/// Only those under the path, whatever the server thinks of the prefix: who deletes by this list must not meet profiles of others.
pub(super) async fn list(client: &Client, path_prefix: String) -> Result<Vec<InstanceProfile>, Failure> {
    const ACTION: &str = "iam:ListInstanceProfiles";
    let mut pages = client.list_instance_profiles().path_prefix(&path_prefix).into_paginator().send();
    let mut found = Listed::new(ACTION);
    while let Some(page) = pages.next().await {
        let rows = page.map_err(of(ACTION))?.instance_profiles.into_iter().map(profile);
        found.add(rows.filter(|profile| profile.path.starts_with(&path_prefix)))?;
    }
    Ok(found.rows())
}

fn profile(row: types::InstanceProfile) -> InstanceProfile {
    let tags: Tags = row.tags().iter().map(|tag| (tag.key().to_owned(), tag.value().to_owned())).collect();
    let roles = row.roles().iter().map(|role| role.role_name().to_owned()).collect();
    InstanceProfile { name: row.instance_profile_name, path: row.path, roles, tags }
}
