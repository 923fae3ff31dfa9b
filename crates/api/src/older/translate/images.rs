//! Which images nodes start from, and the format of their bootstrap data.

use serde_json::{Value, json};

use super::TranslationSettings;
use super::read::{Section, Told};
use super::selectors;
use crate::objects::AmiFamily;

/// From this minor version on there are no AL2 images for EKS.
const WITHOUT_AL2: u32 = 33;

/// What to do about Ubuntu where no image is selected.
pub(super) const NO_UBUNTU_TERMS: &str = "images of Ubuntu are no longer looked up; select one (in an AWSNodeTemplate by amiSelector, for \
     instance aws::owners \"099720109477\" and aws::name; in an EC2NodeClass by amiSelectorTerms), or name another family";

pub(super) struct Images {
    pub(super) terms: Value,
    pub(super) family: AmiFamily,
    /// The family, unless the terms say it.
    pub(super) written_family: Option<&'static str>,
    /// Volumes of a family that v1 does not know; `Null` for the others.
    pub(super) default_volumes: Value,
}

impl Images {
    fn newest(alias: &str, family: AmiFamily) -> Self {
        let terms = json!([{"alias": format!("{alias}@latest")}]);
        Self { terms, family, written_family: None, default_volumes: Value::Null }
    }

    /// What is put where there is no answer, beside a refusal.
    fn none() -> Self {
        Self::newest("al2023", AmiFamily::Al2023)
    }
}

pub(super) fn of(fields: &Section<'_>, settings: &TranslationSettings, told: &mut Told) -> Images {
    const FIELD: &str = "amiFamily";
    let selected = selectors::images(fields, told);
    let Some(named) = fields.word(FIELD, told) else {
        return match selected {
            // Chosen images keep the format that they were chosen for.
            Some(terms) => of_own("AL2", AmiFamily::Al2, terms),
            None => unnamed(fields, settings, told),
        };
    };
    if named == "Ubuntu" {
        return ubuntu(fields, selected, told);
    }
    let Some(word) = AmiFamily::WORDS.iter().copied().find(|word| *word == named) else {
        let message = format!("one of {} would do", AmiFamily::WORDS.join(", "));
        told.refuse(fields.at(FIELD), &json!(named), message);
        return Images::none();
    };
    let family = AmiFamily::from(word);
    let alias = AmiFamily::ALIASES.iter().find(|(_, family)| *family == word).map(|(alias, _)| *alias);
    match (selected, alias) {
        (Some(terms), _) => of_own(word, family, terms),
        (None, None) => {
            told.miss(
                fields.at("amiSelector"),
                "the family Custom comes without images; select one, by aws::ids for instance",
            );
            Images { terms: json!([]), family, written_family: Some(word), default_volumes: Value::Null }
        }
        (None, Some(alias)) => {
            if family == AmiFamily::Al2 {
                judge_al2(fields, settings, told);
            }
            Images::newest(alias, family)
        }
    }
}

fn of_own(word: &'static str, family: AmiFamily, terms: Value) -> Images {
    Images { terms, family, written_family: Some(word), default_volumes: Value::Null }
}

/// Nobody chose a family or an image: AL2, as it was then, where the cluster's version has it.
fn unnamed(fields: &Section<'_>, settings: &TranslationSettings, told: &mut Told) -> Images {
    let place = fields.at("amiFamily");
    match settings.kubernetes_minor {
        Some(minor) if minor < WITHOUT_AL2 => Images::newest("al2", AmiFamily::Al2),
        Some(minor) => {
            let message = format!(
                "no family is named, which meant AL2; Kubernetes 1.{minor} has no AL2 images, so AL2023 is taken (name a family to choose)"
            );
            told.warn(place, message);
            Images::newest("al2023", AmiFamily::Al2023)
        }
        None => {
            told.miss(
                place,
                "no family is named, which means AL2 up to Kubernetes 1.32 and AL2023 from 1.33 on; name a family, or say \
                 the cluster's version (kerf convert --kubernetes-version)",
            );
            Images::none()
        }
    }
}

/// Who names a family gets that one or is refused.
fn judge_al2(fields: &Section<'_>, settings: &TranslationSettings, told: &mut Told) {
    let place = fields.at("amiFamily");
    match settings.kubernetes_minor {
        Some(minor) if minor >= WITHOUT_AL2 => {
            let message = format!(
                "Kubernetes 1.{minor} has no AL2 images, and a family that is named is not changed for you; AL2023 takes over: {}",
                patch(fields)
            );
            told.refuse(place, &json!("AL2"), message);
        }
        Some(_) => {}
        None => told.warn(place, "from Kubernetes 1.33 on there are no AL2 images; AL2023 takes over then"),
    }
}

/// The command that helps.
fn patch(fields: &Section<'_>) -> String {
    let (kind, name) = fields.place.object.split_once(' ').unwrap_or((&fields.place.object, ""));
    let mut body = json!({"amiFamily": "AL2023"});
    for parent in fields.place.path.rsplit('.') {
        body = json!({parent: body});
    }
    format!("kubectl patch {} {name} --type merge -p '{body}'", kind.to_lowercase())
}

/// Ubuntu's images boot as AL2's do; v1 has no name for them.
fn ubuntu(fields: &Section<'_>, selected: Option<Value>, told: &mut Told) -> Images {
    let place = fields.at("amiFamily");
    let Some(terms) = selected else {
        told.refuse(place, &json!("Ubuntu"), NO_UBUNTU_TERMS);
        return Images::none();
    };
    told.warn(place, "Ubuntu is no family any more; AL2 is written, whose bootstrap data the selected images take");
    let default_volumes = json!([{
        "deviceName": "/dev/sda1",
        "rootVolume": true,
        "ebs": {"volumeSize": "20Gi", "volumeType": "gp3", "encrypted": true},
    }]);
    Images { terms, family: AmiFamily::Al2, written_family: Some("AL2"), default_volumes }
}
