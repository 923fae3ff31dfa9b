//! Volumes: the same in v1, except that their size has fewer spellings.

use kerf_model::Quantity;
use serde_json::{Map, Value, json};

use super::read::{Section, Told};
use crate::validate::is_volume_size;

const EBS: &[&str] =
    &["deleteOnTermination", "encrypted", "iops", "kmsKeyID", "snapshotID", "throughput", "volumeSize", "volumeType"];

pub(super) fn of(fields: &Section<'_>, told: &mut Told) -> Value {
    let mut made = Vec::new();
    for mapping in fields.sections("blockDeviceMappings", told) {
        mapping.tell_unknown(&["deviceName", "ebs"], told);
        let ebs = mapping.section("ebs", told);
        ebs.tell_unknown(EBS, told);
        let mut volume: Map<String, Value> = ebs
            .entries()
            .filter(|(name, _)| EBS.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if let Some(size) = ebs.get("volumeSize") {
            match size_in_words(size) {
                Some(text) => drop(volume.insert("volumeSize".to_owned(), text.into())),
                None => {
                    told.refuse(ebs.at("volumeSize"), size, "a size from 1Gi to 64T, such as 100Gi, would do");
                    volume.insert("volumeSize".to_owned(), "1Gi".into());
                }
            }
        }
        let mut entry = Map::new();
        super::pool::put(&mut entry, "deviceName", json!(mapping.text("deviceName", told)));
        super::pool::put(&mut entry, "ebs", Value::Object(volume));
        made.push(Value::Object(entry));
    }
    Value::Array(made)
}

/// As written where v1 can read it, else in whole GiB: what EC2 was asked for then, rounded up as it was then.
fn size_in_words(size: &Value) -> Option<String> {
    let text = match size {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    if is_volume_size(&text) {
        return Some(text);
    }
    let bytes = Quantity::parse(&text).ok()?.units();
    let in_gib = format!("{}Gi", bytes.checked_add((1 << 30) - 1)? >> 30);
    (bytes > 0 && is_volume_size(&in_gib)).then_some(in_gib)
}
