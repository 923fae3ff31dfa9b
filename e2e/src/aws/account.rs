//! An emulated AWS account, looked at from outside: what a person would ask in a console while our operator works in it.
//!
//! Plain HTTP with a credential that only names service and region; answers in XML become JSON, lists as arrays. Not for: what
//! the operator sends. That goes through the official SDK.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};

/// The whole catalogue of instance types takes the emulator two seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Account {
    agent: ureq::Agent,
    endpoint: String,
    region: String,
    key_id: String,
}

/// A machine, as far as a test cares.
#[derive(Clone, Debug)]
pub struct Machine {
    pub id: String,
    pub instance_type: String,
    /// `running`, `terminated`, ….
    pub state: String,
    pub zone: String,
    pub image_id: String,
    pub private_dns_name: String,
    pub private_address: String,
    pub is_spot: bool,
    pub tags: Vec<(String, String)>,
}

impl Machine {
    #[must_use]
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.tags.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
    }

    /// Neither gone nor going.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        matches!(self.state.as_str(), "pending" | "running")
    }

    /// As nodes and claims name it.
    #[must_use]
    pub fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.id)
    }
}

impl Account {
    /// `key_id` belongs to whoever may do anything.
    #[must_use]
    pub fn new(endpoint: &str, region: &str, key_id: &str) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(ANSWER_WITHIN))
            .proxy(None)
            .build()
            .new_agent();
        Self {
            agent,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            region: region.to_owned(),
            key_id: key_id.to_owned(),
        }
    }

    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// A call of EC2: `ec2("DescribeInstances", &[("Filter.1.Name", "…".into())])`.
    pub fn ec2(&self, action: &str, parameters: &[(&str, String)]) -> Result<Value> {
        self.query("ec2", "2016-11-15", action, parameters)
    }

    pub fn iam(&self, action: &str, parameters: &[(&str, String)]) -> Result<Value> {
        let answer = self.query("iam", "2010-05-08", action, parameters)?;
        Ok(answer[format!("{action}Result")].clone())
    }

    pub fn sqs(&self, action: &str, body: &Value) -> Result<Value> {
        self.json("sqs", &format!("AmazonSQS.{action}"), "application/x-amz-json-1.0", body)
    }

    pub fn ssm(&self, action: &str, body: &Value) -> Result<Value> {
        self.json("ssm", &format!("AmazonSSM.{action}"), "application/x-amz-json-1.1", body)
    }

    /// Every machine that the account remembers, ended ones included.
    pub fn machines(&self) -> Result<Vec<Machine>> {
        let answer = self.ec2("DescribeInstances", &[])?;
        let reservations = list(&answer["reservationSet"]);
        let instances = reservations.iter().flat_map(|reservation| list(&reservation["instancesSet"]));
        Ok(instances.map(machine).collect())
    }

    /// Those that live and belong to a cluster.
    pub fn machines_of(&self, cluster: &str) -> Result<Vec<Machine>> {
        let mut machines = self.machines()?;
        let key = format!("kubernetes.io/cluster/{cluster}");
        machines.retain(|machine| machine.is_alive() && machine.tag(&key) == Some("owned"));
        Ok(machines)
    }

    /// Names of launch templates with a tag `kubernetes.io/cluster/<cluster>`.
    pub fn templates_of(&self, cluster: &str) -> Result<Vec<String>> {
        let filter =
            [("Filter.1.Name", "tag-key".to_owned()), ("Filter.1.Value.1", format!("kubernetes.io/cluster/{cluster}"))];
        let answer = self.ec2("DescribeLaunchTemplates", &filter)?;
        Ok(list(&answer["launchTemplates"]).iter().map(|template| text(&template["launchTemplateName"])).collect())
    }

    /// The data of a template's only version, by the template's id.
    pub fn template_data_of(&self, id: &str) -> Result<Value> {
        let answer = self.ec2("DescribeLaunchTemplateVersions", &[("LaunchTemplateId", id.to_owned())])?;
        let versions = list(&answer["launchTemplateVersionSet"]);
        let version = versions.last().with_context(|| format!("launch template {id} has no version"))?;
        Ok(version["launchTemplateData"].clone())
    }

    /// Names of instance profiles under our path.
    pub fn profiles_of(&self, cluster: &str) -> Result<Vec<String>> {
        let answer = self.iam("ListInstanceProfiles", &[])?;
        let ours = format!("/karpenter/{}/{cluster}/", self.region);
        let profiles = list(&answer["InstanceProfiles"]);
        let found = profiles.iter().filter(|profile| text(&profile["Path"]).starts_with(&ours));
        Ok(found.map(|profile| text(&profile["InstanceProfileName"])).collect())
    }

    /// One instance type, as EC2 describes it.
    pub fn instance_type(&self, name: &str) -> Result<Value> {
        let answer = self.ec2("DescribeInstanceTypes", &[("InstanceType.1", name.to_owned())])?;
        list(&answer["instanceTypeSet"]).first().cloned().with_context(|| format!("EC2 knows no type {name}"))
    }

    pub fn create_queue(&self, name: &str) -> Result<String> {
        let answer = self.sqs("CreateQueue", &json!({"QueueName": name}))?;
        Ok(text(&answer["QueueUrl"]))
    }

    /// Sends up to ten messages in one call.
    pub fn send(&self, queue_url: &str, bodies: &[String]) -> Result<()> {
        let entries: Vec<Value> = bodies
            .iter()
            .enumerate()
            .map(|(index, body)| json!({"Id": format!("m{index}"), "MessageBody": body}))
            .collect();
        let answer = self.sqs("SendMessageBatch", &json!({"QueueUrl": queue_url, "Entries": entries}))?;
        match answer["Failed"].as_array().is_none_or(Vec::is_empty) {
            true => Ok(()),
            false => bail!("messages were not taken: {}", answer["Failed"]),
        }
    }

    /// Messages that wait, and those that somebody is looking at.
    pub fn n_messages(&self, queue_url: &str) -> Result<(u64, u64)> {
        let asked = json!({"QueueUrl": queue_url, "AttributeNames": ["All"]});
        let answer = self.sqs("GetQueueAttributes", &asked)?;
        let count = |name: &str| text(&answer["Attributes"][name]).parse().unwrap_or(0);
        Ok((count("ApproximateNumberOfMessages"), count("ApproximateNumberOfMessagesNotVisible")))
    }

    fn query(&self, service: &str, version: &str, action: &str, parameters: &[(&str, String)]) -> Result<Value> {
        let mut form = vec![("Action", action.to_owned()), ("Version", version.to_owned())];
        form.extend(parameters.iter().cloned());
        let answer = self
            .agent
            .post(&self.endpoint)
            .header("Authorization", self.authorization(service))
            .send_form(form)
            .with_context(|| format!("{action}: the emulator does not answer"))?;
        let (status, body) = read(answer, action)?;
        if !(200..300).contains(&status) {
            bail!("{action}: {status}: {body}");
        }
        let document = roxmltree::Document::parse(&body).with_context(|| format!("{action}: not XML"))?;
        Ok(value(document.root_element()))
    }

    fn json(&self, service: &str, target: &str, content_type: &str, body: &Value) -> Result<Value> {
        let answer = self
            .agent
            .post(&self.endpoint)
            .header("Authorization", self.authorization(service))
            .header("X-Amz-Target", target)
            .header("Content-Type", content_type)
            .send(body.to_string())
            .with_context(|| format!("{target}: the emulator does not answer"))?;
        let (status, body) = read(answer, target)?;
        if !(200..300).contains(&status) {
            bail!("{target}: {status}: {body}");
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&body).with_context(|| format!("{target}: not JSON"))
    }

    /// Names the service and the region; the emulator looks at nothing else.
    fn authorization(&self, service: &str) -> String {
        let Self { key_id, region, .. } = self;
        format!(
            "AWS4-HMAC-SHA256 Credential={key_id}/20260101/{region}/{service}/aws4_request, SignedHeaders=host, Signature=0"
        )
    }
}

fn read(mut answer: ureq::http::Response<ureq::Body>, what: &str) -> Result<(u16, String)> {
    let status = answer.status().as_u16();
    let limit = 256 << 20;
    let body = answer.body_mut().with_config().limit(limit).read_to_string();
    Ok((status, body.with_context(|| format!("{what}: an answer that cannot be read"))?))
}

/// XML as JSON: elements named `item` or `member` make a list, others a map, and those without children a text.
fn value(node: roxmltree::Node<'_, '_>) -> Value {
    let children: Vec<_> = node.children().filter(roxmltree::Node::is_element).collect();
    let Some(first) = children.first() else {
        return Value::String(node.text().unwrap_or_default().to_owned());
    };
    if matches!(first.tag_name().name(), "item" | "member") {
        return Value::Array(children.into_iter().map(value).collect());
    }
    let fields = children.into_iter().map(|child| (child.tag_name().name().to_owned(), value(child)));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// An empty list is an empty text.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn machine(instance: &Value) -> Machine {
    let tags = list(&instance["tagSet"]);
    Machine {
        id: text(&instance["instanceId"]),
        instance_type: text(&instance["instanceType"]),
        state: text(&instance["instanceState"]["name"]),
        zone: text(&instance["placement"]["availabilityZone"]),
        image_id: text(&instance["imageId"]),
        private_dns_name: text(&instance["privateDnsName"]),
        private_address: text(&instance["privateIpAddress"]),
        is_spot: instance["instanceLifecycle"] == "spot",
        tags: tags.iter().map(|tag| (text(&tag["key"]), text(&tag["value"]))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_reads_as_maps_lists_and_texts() {
        let xml = "<r xmlns='urn:x'><set><item><a>1</a></item><item><a>2</a></item></set><none/><b>x</b></r>";
        let document = roxmltree::Document::parse(xml).unwrap();
        let expected = json!({"set": [{"a": "1"}, {"a": "2"}], "none": "", "b": "x"});
        assert_eq!(value(document.root_element()), expected);
        assert!(list(&expected["none"]).is_empty());
    }
}
