//! What the served control plane keeps from whoever else has an account on the machine.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use kerf_control_plane::request::Request;
use kerf_control_plane::{ControlPlane, Options};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

fn served() -> ControlPlane {
    ControlPlane::start(&Options { with_controllers: false, ..Options::default() }).unwrap()
}

fn token_of_an_account(plane: &ControlPlane) -> String {
    let create = |path: &str, body: serde_json::Value| {
        plane.server().handle(&Request {
            method: "POST".to_owned(),
            path: path.to_owned(),
            content_type: "application/json".to_owned(),
            body: body.to_string().into(),
            ..Request::default()
        })
    };
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    create(accounts, json!({"metadata": {"name": "robot"}}));
    let answer = create(&format!("{accounts}/robot/token"), json!({"spec": {}}));
    answer.to_value()["status"]["token"].as_str().unwrap().to_owned()
}

#[test]
fn no_token_follows_from_the_seed() {
    let (one, other) = (served(), served());
    let token = |plane: &ControlPlane| plane.address().unwrap().token.clone();
    assert_ne!(token(&one), token(&other));
    assert!(token(&one).len() >= 64, "long enough not to be tried");
    assert_ne!(token_of_an_account(&one), token_of_an_account(&other));
}

#[test]
fn a_kubeconfig_is_read_by_its_owner_alone() {
    let plane = served();
    let path = std::env::temp_dir().join(format!("{}.yaml", plane.address().unwrap().token));
    std::fs::write(&path, "open to all").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    plane.write_kubeconfig(&path).unwrap();
    let (mode, text) =
        (std::fs::metadata(&path).unwrap().permissions().mode(), std::fs::read_to_string(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(mode & 0o777, 0o600);
    assert!(text.contains(&plane.address().unwrap().token));
}
