//! Who may not do what, and what would let them.
//!
//! EC2 hides the reason of a refusal in an encoded message, which STS decodes for those who may ask. Where we may not, the text of the
//! refusal and the caller's identity tell enough, and the message has the command that an administrator can run.

use crate::wire::{Aws, CallerIdentity, Failure};
use serde_json::{Value, json};

const BLOB: &str = "Encoded authorization failure message: ";

/// What should have been: names that an advice can point to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// `namespace/name`; empty when it is not known.
    pub service_account: String,
    /// Roles of nodes, by name, where classes say them.
    pub node_roles: Vec<String>,
}

/// A refusal, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// Who asked, as AWS saw it.
    pub principal: Option<String>,
    /// What was missing: not always the call that failed. A launch needs `iam:PassRole` too.
    pub action: String,
    pub resource: Option<String>,
    /// A policy says no, rather than none saying yes. None when AWS does not tell.
    pub is_explicit: Option<bool>,
    /// Everything a person needs, in one paragraph.
    pub advice: String,
}

/// Flow: decode what is encoded, where we may; otherwise ask who we are; then explain.
///
/// Caveats: asks AWS up to twice. A refusal of these questions is part of the answer, not an error.
pub async fn denied(wire: &dyn Aws, failure: &Failure, expected: &Expected) -> Denied {
    let decoded = match blob(&failure.message) {
        Some(blob) => wire.decode_authorization_message(blob.to_owned()).await.ok(),
        None => None,
    };
    let is_principal_told = decoded.is_some() || word_after(&failure.message, "User: ").is_some();
    let caller = match is_principal_told {
        true => None,
        false => wire.get_caller_identity().await.ok(),
    };
    explain(failure, decoded.as_deref(), caller.as_ref(), expected)
}

/// The same from what is at hand: the decoded message, and who the caller is.
pub fn explain(
    failure: &Failure,
    decoded: Option<&str>,
    caller: Option<&CallerIdentity>,
    expected: &Expected,
) -> Denied {
    let decoded: Option<Value> = decoded.and_then(|text| serde_json::from_str(text).ok());
    let at = |path: &str| decoded.as_ref()?.pointer(path)?.as_str().map(str::to_owned);
    let said = |before: &str| word_after(&failure.message, before).map(str::to_owned);
    let principal = at("/context/principal/arn").or_else(|| said("User: ")).or_else(|| Some(caller?.arn.clone()));
    let action = at("/context/action").or_else(|| said("to perform: ")).unwrap_or_else(|| failure.action.to_owned());
    let resource = at("/context/resource").or_else(|| said("on resource: "));
    let is_explicit = match decoded.as_ref().and_then(|it| it.get("explicitDeny")).and_then(Value::as_bool) {
        None if failure.message.contains("explicit deny") => Some(true),
        None if failure.message.contains("no identity-based policy allows") => Some(false),
        told => told,
    };
    let mut denied = Denied { principal, action, resource, is_explicit, advice: String::new() };
    denied.advice = advice(failure, &denied, decoded.is_some(), expected);
    denied
}

fn advice(failure: &Failure, denied: &Denied, is_decoded: bool, expected: &Expected) -> String {
    let who = denied.principal.as_deref().unwrap_or("the operator");
    let what = match denied.action == failure.action {
        true => format!("{who} may not call {}", failure.action),
        false => format!("{} needs {}, which {who} may not do", failure.action, denied.action),
    };
    let on = denied.resource.as_ref().map_or_else(String::new, |resource| format!(" on {resource}"));
    let how = match denied.is_explicit {
        Some(true) => ": a policy denies it",
        Some(false) => ": no policy allows it",
        None => "",
    };
    let mut said = format!("{what}{on}{how}.");
    let instance_role = denied.principal.as_deref().and_then(instance_role);
    let node_role = instance_role.or_else(|| {
        let role = denied.principal.as_deref().and_then(role)?;
        expected.node_roles.iter().any(|name| name == role).then_some(role)
    });
    match node_role {
        Some(role) => said.push_str(&not_in_effect(role, expected)),
        None => said.push_str(&fix(denied)),
    }
    // Only who cannot decode needs the command.
    if let (false, Some(blob)) = (is_decoded, blob(&failure.message)) {
        said.push_str(&format!(
            " AWS tells more to who may ask: aws sts decode-authorization-message --encoded-message {blob}"
        ));
    }
    said
}

/// The operator speaks as the machine it runs on.
fn not_in_effect(role: &str, expected: &Expected) -> String {
    let (account, command) = match expected.service_account.split_once('/') {
        Some((namespace, name)) => (
            format!("ServiceAccount {namespace}/{name}"),
            format!(
                "kubectl -n {namespace} annotate serviceaccount {name} eks.amazonaws.com/role-arn=<ARN of the operator's role>"
            ),
        ),
        None => ("the operator's service account".to_owned(), "annotate it with eks.amazonaws.com/role-arn".to_owned()),
    };
    format!(
        " {role} is the role of a node, not of the operator: the role of its service account (IRSA or Pod Identity) is not in \
         effect. Most likely {account} carries no role annotation (metadata.annotations[eks.amazonaws.com/role-arn]) and no Pod \
         Identity association. Fix: {command}, or make an association, then restart the operator's pods."
    )
}

fn fix(denied: &Denied) -> String {
    let resource = denied.resource.as_deref().unwrap_or("*");
    if denied.action == "iam:PassRole" {
        let statement = json!({
            "Effect": "Allow",
            "Action": "iam:PassRole",
            "Resource": resource,
            "Condition": {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}},
        });
        return format!(
            " Nodes get their role from the operator, who must be allowed to pass it on. Is it the role that spec.role or the \
             instance profile names? Then add to the operator's policy: {statement}"
        );
    }
    if denied.is_explicit == Some(true) {
        return " Find the statement with Effect Deny in the role's policies, its permissions boundary or the organization's \
                service control policies."
            .to_owned();
    }
    let statement = json!({"Effect": "Allow", "Action": denied.action, "Resource": resource});
    format!(" Add to the operator's policy: {statement}")
}

/// `arn:aws:sts::1:assumed-role/<role>/i-0123`: a session of an instance, named after it by EC2.
fn instance_role(principal: &str) -> Option<&str> {
    let (role, session) = principal.split_once(":assumed-role/")?.1.split_once('/')?;
    let id = session.strip_prefix("i-")?;
    (!id.is_empty() && id.chars().all(|letter| letter.is_ascii_hexdigit())).then_some(role)
}

fn role(principal: &str) -> Option<&str> {
    principal.split_once(":assumed-role/")?.1.split('/').next()
}

fn blob(message: &str) -> Option<&str> {
    word_after(message, BLOB)
}

fn word_after<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    let rest = message.split_once(before)?.1;
    rest.split_whitespace().next().map(|word| word.trim_end_matches(['.', ',']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::scripted::Scripted;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    const NODE: &str = "arn:aws:sts::111122223333:assumed-role/KarpenterNodeRole-demo/i-0a1b2c3d4e5f60718";

    /// The scripted AWS answers at once.
    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("a scripted answer is there at once"),
        }
    }

    fn refusal() -> Failure {
        let message = format!("You are not authorized to perform this operation. {BLOB}AbC123");
        Failure::new("ec2:CreateLaunchTemplate", "UnauthorizedOperation", &message)
    }

    fn decoded(principal: &str, action: &str, resource: &str) -> String {
        json!({
            "allowed": false,
            "explicitDeny": false,
            "matchedStatements": {"items": []},
            "failures": {"items": []},
            "context": {
                "principal": {"id": "AROA:x", "arn": principal},
                "action": action,
                "resource": resource,
                "conditions": {"items": [{"key": "aws:Region", "values": {"items": [{"value": "eu-west-1"}]}}]},
            },
        })
        .to_string()
    }

    fn expected() -> Expected {
        Expected { service_account: "karpenter/karpenter-controller".to_owned(), node_roles: Vec::new() }
    }

    #[test]
    fn d3_32_an_encoded_refusal_is_decoded_and_names_action_resource_and_the_missing_statement() {
        let aws = Scripted::default();
        let template = "arn:aws:ec2:eu-west-1:111122223333:launch-template/*";
        let principal = "arn:aws:sts::111122223333:assumed-role/demo-karpenter/1699999999";
        aws.account().decoded.insert("AbC123".to_owned(), decoded(principal, "ec2:CreateLaunchTemplate", template));
        let denied = now(denied(&aws, &refusal(), &expected()));
        assert_eq!(denied.action, "ec2:CreateLaunchTemplate");
        assert_eq!(denied.resource.as_deref(), Some(template));
        assert_eq!(denied.principal.as_deref(), Some(principal));
        assert_eq!(denied.is_explicit, Some(false));
        let wanted = format!(
            "{principal} may not call ec2:CreateLaunchTemplate on {template}: no policy allows it. Add to the operator's policy: \
             {{\"Action\":\"ec2:CreateLaunchTemplate\",\"Effect\":\"Allow\",\"Resource\":\"{template}\"}}"
        );
        assert_eq!(denied.advice, wanted);
        assert_eq!(aws.count("sts:GetCallerIdentity"), 0);
    }

    #[test]
    fn d3_33_a_call_made_as_the_node_says_that_the_service_accounts_role_is_not_in_effect() {
        let aws = Scripted::default();
        aws.account().decoded.insert("AbC123".to_owned(), decoded(NODE, "ec2:CreateLaunchTemplate", "*"));
        let told = now(denied(&aws, &refusal(), &expected()));
        assert!(told.advice.contains("KarpenterNodeRole-demo is the role of a node"), "{}", told.advice);
        assert!(
            told.advice.contains("ServiceAccount karpenter/karpenter-controller carries no role annotation"),
            "{}",
            told.advice
        );
        assert!(
            told.advice.contains("kubectl -n karpenter annotate serviceaccount karpenter-controller"),
            "{}",
            told.advice
        );
    }

    #[test]
    fn d3_33_it_is_said_too_when_decoding_is_not_allowed() {
        let aws = Scripted::default();
        aws.account().identity.arn = NODE.to_owned();
        aws.fail_always(Failure::new("sts:DecodeAuthorizationMessage", "AccessDenied", "no"));
        let told = now(denied(&aws, &refusal(), &expected()));
        assert_eq!(told.principal.as_deref(), Some(NODE));
        assert_eq!(told.action, "ec2:CreateLaunchTemplate");
        assert!(told.advice.contains("is not in effect"), "{}", told.advice);
        assert!(
            told.advice.ends_with("aws sts decode-authorization-message --encoded-message AbC123"),
            "{}",
            told.advice
        );
    }

    #[test]
    fn a_role_that_a_class_gives_to_nodes_is_known_without_an_instance_in_the_session() {
        let expected = Expected { node_roles: vec!["NodeRole".to_owned()], ..expected() };
        let arn = "arn:aws:sts::1:assumed-role/NodeRole/session";
        let message = format!(
            "User: {arn} is not authorized to perform: ec2:CreateFleet on resource: * because no identity-based policy allows it"
        );
        let told = explain(&Failure::new("ec2:CreateFleet", "UnauthorizedOperation", &message), None, None, &expected);
        assert!(told.advice.contains("NodeRole is the role of a node"), "{}", told.advice);
    }

    #[test]
    fn a_denied_pass_role_is_named_though_another_call_failed() {
        let role = "arn:aws:iam::111122223333:role/KarpenterNodeRole-demo";
        let principal = "arn:aws:sts::111122223333:assumed-role/operator/s";
        let text = decoded(principal, "iam:PassRole", role);
        let told = explain(&refusal(), Some(&text), None, &expected());
        assert!(
            told.advice.starts_with(&format!(
                "ec2:CreateLaunchTemplate needs iam:PassRole, which {principal} may not do on {role}: no policy allows it."
            )),
            "{}",
            told.advice
        );
        assert!(told.advice.contains("iam:PassedToService"), "{}", told.advice);
    }

    #[test]
    fn a_plain_refusal_of_another_service_is_read_from_its_words() {
        let message = "User: arn:aws:iam::1:user/dev is not authorized to perform: iam:CreateInstanceProfile on resource: \
                       arn:aws:iam::1:instance-profile/x with an explicit deny in an identity-based policy";
        let failure = Failure::new("iam:CreateInstanceProfile", "AccessDenied", message);
        let told = explain(&failure, None, None, &Expected::default());
        assert_eq!(told.principal.as_deref(), Some("arn:aws:iam::1:user/dev"));
        assert_eq!(told.resource.as_deref(), Some("arn:aws:iam::1:instance-profile/x"));
        assert_eq!(told.is_explicit, Some(true));
        assert!(told.advice.contains("Effect Deny"), "{}", told.advice);
    }
}
