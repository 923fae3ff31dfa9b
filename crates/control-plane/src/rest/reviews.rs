//! Questions about who somebody is and what they may do. They are answered and not kept.
//!
//! Whoever has a token may do everything here, so the second answer follows from the first; programs that ask before they act, as an
//! operator does that others ask about its decisions, find somebody who answers.

use serde_json::{Value, json};

use super::answer::Answer;
use super::method_not_allowed;
use crate::error::{ApiError, ApiResult};
use crate::request::Request;
use crate::state::State;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

impl State {
    /// None for every other path.
    pub(super) fn review(&self, request: &Request) -> Option<ApiResult<Answer>> {
        let status: fn(&State, &Value) -> Value = match request.path.as_str() {
            TOKEN_REVIEWS => State::who_has,
            ACCESS_REVIEWS => |_, _| json!({"allowed": true}),
            _ => return None,
        };
        if request.method != "POST" {
            return Some(Err(method_not_allowed()));
        }
        let asked: Value = match serde_json::from_slice(&request.body) {
            Ok(asked @ Value::Object(_)) => asked,
            Ok(_) => return Some(Err(ApiError::bad_request("the body of a review is not an object"))),
            Err(error) => {
                let message = format!("couldn't get version/kind; json parse error: {error}");
                return Some(Err(ApiError::bad_request(message)));
            }
        };
        let mut answer = asked;
        answer["status"] = status(self, &answer["spec"]);
        Some(Ok(Answer::json(201, &answer)))
    }

    fn who_has(&self, spec: &Value) -> Value {
        let token = spec["token"].as_str().unwrap_or_default();
        let is_known = !token.is_empty() && (token == self.token || self.tokens.contains(token));
        match is_known {
            true => json!({"authenticated": true, "user": {"username": "kerf", "groups": ["system:masters"]}}),
            false => json!({"user": {}, "error": "invalid bearer token"}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn ask(path: &str, body: &Value) -> Value {
        let mut state = State::new(Clock::real(), 1);
        state.token = "known".to_owned();
        let request = Request {
            method: "POST".to_owned(),
            path: path.to_owned(),
            content_type: "application/json".to_owned(),
            body: body.to_string().into(),
            ..Request::default()
        };
        let answer = state.handle(&request);
        assert_eq!(answer.status, 201);
        answer.to_value()["status"].clone()
    }

    #[test]
    fn a_token_is_known_or_not() {
        let of = |token: &str| ask(TOKEN_REVIEWS, &json!({"kind": "TokenReview", "spec": {"token": token}}));
        assert_eq!(of("known")["authenticated"], true);
        assert_eq!(of("known")["user"]["username"], "kerf");
        for unknown in ["", "other"] {
            assert_eq!(of(unknown)["authenticated"], Value::Null, "{unknown:?}");
        }
    }

    #[test]
    fn everybody_may_do_everything() {
        let spec = json!({"user": "kerf", "resourceAttributes": {"verb": "get", "resource": "pods"}});
        assert_eq!(ask(ACCESS_REVIEWS, &json!({"kind": "SubjectAccessReview", "spec": spec}))["allowed"], true);
    }
}
