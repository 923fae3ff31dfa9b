//! What was found, for people and for programs.

use serde::Serialize;
use serde_json::Value;
use std::io::Write;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) cluster: String,
    pub(super) region: String,
    pub(super) account: String,
    pub(super) principal: String,
    pub(super) findings: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    /// What was looked at: `ec2:DescribeSubnets`, `EC2NodeClass default`.
    pub(super) subject: String,
    pub(super) message: String,
    /// The IAM statement that is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) statement: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Ok,
    /// Nodes launch without it; something else does not work.
    Off,
    /// Works, and may not be meant.
    Odd,
    /// Could not be found out.
    Unknown,
    /// No nodes without it.
    Missing,
}

impl Verdict {
    const ALL: [Self; 5] = [Self::Ok, Self::Off, Self::Odd, Self::Unknown, Self::Missing];

    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Off => "off",
            Self::Odd => "odd",
            Self::Unknown => "unknown",
            Self::Missing => "MISSING",
        }
    }
}

impl Finding {
    pub(super) fn new(verdict: Verdict, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { verdict, subject: subject.into(), message: message.into(), statement: None }
    }

    pub(super) fn with_statement(mut self, statement: Value) -> Self {
        self.statement = Some(statement);
        self
    }
}

impl Report {
    /// Whether nothing that is needed is missing.
    pub(super) fn is_complete(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict != Verdict::Missing)
    }

    pub(super) fn write_text(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "cluster {} in {}, as {}\n", self.cluster, self.region, self.principal)?;
        for finding in &self.findings {
            writeln!(out, "{:<8} {}: {}", finding.verdict.word(), finding.subject, finding.message)?;
            if let Some(statement) = &finding.statement {
                writeln!(out, "{:<8} add to the policy: {statement}", "")?;
            }
        }
        let counts: Vec<String> = Verdict::ALL
            .iter()
            .map(|verdict| (verdict, self.findings.iter().filter(|finding| finding.verdict == *verdict).count()))
            .filter(|(_, count)| *count > 0)
            .map(|(verdict, count)| format!("{count} {}", verdict.word().to_lowercase()))
            .collect();
        writeln!(out, "\n{}", counts.join(", "))
    }

    pub(super) fn write_json(&self, out: &mut impl Write) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::other)?;
        writeln!(out, "{text}")
    }
}
