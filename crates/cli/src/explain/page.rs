//! The operator's side: answers on its port, to whoever the cluster knows.

use kerf_controllers::explain::{Subject, explain};
use kerf_controllers::shell::{Caller, Handle, PageRequest, Pages, Reply};
use kerf_controllers::{ApiCall, ApiFailure};
use kerf_model::PodId;
use serde_json::{Value, json};

/// Where the API server's proxy hands on who asks: it keeps `Authorization` for itself.
pub(crate) const TOKEN_HEADER: &str = "x-kerf-authorization";

/// Who may ask.
#[derive(Clone)]
pub(crate) enum Guard {
    /// Whoever has this token.
    Token(String),
    /// Whoever the API server knows, and lets read NodeClaims.
    Review(Caller),
}

/// Adds the pages below `/explain/`.
pub(crate) fn with_explanations(pages: Pages, handle: &Handle, guard: Guard) -> Pages {
    let handle = handle.clone();
    pages.with("/explain/", move |request| {
        let (handle, guard) = (handle.clone(), guard.clone());
        async move { answer(&handle, &guard, &request).await }
    })
}

async fn answer(handle: &Handle, guard: &Guard, request: &PageRequest) -> Reply {
    if let Err(reply) = guard.admit(token(request)).await {
        return reply;
    }
    let Some(subject) = subject(request.uri().path()) else {
        return Reply::text(
            404,
            "ask for /explain/pod/NAMESPACE/NAME, /explain/node/NAME, /explain/nodeclaim/NAME or /explain/nodepool/NAME\n",
        );
    };
    match handle.look(move |operator| explain(operator, &subject)).await {
        Some(Some(explanation)) => match serde_json::to_vec(&explanation) {
            Ok(body) => Reply::json(200, body),
            Err(error) => Reply::text(500, format!("{error}\n")),
        },
        Some(None) => Reply::text(404, "it is neither in the cluster nor in the record of decisions\n"),
        None => Reply::text(503, "the operator is stopping\n"),
    }
}

fn subject(path: &str) -> Option<Subject> {
    let parts: Vec<&str> = path.trim_start_matches("/explain/").split('/').collect();
    Some(match parts.as_slice() {
        ["pod", namespace, name] => Subject::Pod(PodId::new(namespace, name)),
        ["node", name] => Subject::Node((*name).to_owned()),
        ["nodeclaim", name] => Subject::NodeClaim((*name).to_owned()),
        ["nodepool", name] => Subject::NodePool((*name).to_owned()),
        _ => return None,
    })
}

fn token(request: &PageRequest) -> Option<&str> {
    let headers = request.headers();
    let header = headers.get(TOKEN_HEADER).or_else(|| headers.get(http::header::AUTHORIZATION))?;
    header.to_str().ok()?.strip_prefix("Bearer ")
}

impl Guard {
    async fn admit(&self, token: Option<&str>) -> Result<(), Reply> {
        let Some(token) = token else {
            return Err(Reply::text(401, "say who you are: a bearer token that the cluster knows\n"));
        };
        match self {
            Guard::Token(known) if known == token => Ok(()),
            Guard::Token(_) => Err(Reply::text(401, "the token is not this cluster's\n")),
            Guard::Review(caller) => review(caller, token).await,
        }
    }
}

/// Asks the API server who has the token, and whether they may read NodeClaims.
async fn review(caller: &Caller, token: &str) -> Result<(), Reply> {
    let unable = |failure: ApiFailure| {
        Reply::text(
            503,
            format!(
                "cannot ask the API server about you: {failure} (the operator needs create on tokenreviews and \
                 subjectaccessreviews)\n"
            ),
        )
    };
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let reviewed = caller.call(post("/apis/authentication.k8s.io/v1/tokenreviews", review)).await.map_err(unable)?;
    if reviewed.pointer("/status/authenticated") != Some(&Value::Bool(true)) {
        return Err(Reply::text(401, "the API server does not know this token\n"));
    }
    let user = &reviewed["status"]["user"];
    let access = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": user["username"], "groups": user["groups"], "uid": user["uid"],
            "resourceAttributes": {"verb": "get", "group": "karpenter.sh", "resource": "nodeclaims"},
        },
    });
    let access =
        caller.call(post("/apis/authorization.k8s.io/v1/subjectaccessreviews", access)).await.map_err(unable)?;
    if access.pointer("/status/allowed") != Some(&Value::Bool(true)) {
        let name = user["username"].as_str().unwrap_or_default();
        return Err(Reply::text(403, format!("{name} may not get nodeclaims.karpenter.sh, and so may not ask\n")));
    }
    Ok(())
}

fn post(path: &str, body: Value) -> ApiCall {
    ApiCall { method: "POST", path: path.to_owned(), content_type: "application/json", body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_what_is_asked_about() {
        assert_eq!(subject("/explain/pod/default/web"), Some(Subject::Pod(PodId::new("default", "web"))));
        assert_eq!(subject("/explain/nodepool/default"), Some(Subject::NodePool("default".to_owned())));
        for odd in ["/explain/", "/explain/pod/web", "/explain/service/a", "/explain/node/a/b"] {
            assert_eq!(subject(odd), None, "{odd}");
        }
    }
}
