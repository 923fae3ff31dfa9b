//! What AWS answered instead.

use std::fmt;

/// An error of an AWS call, with what a person needs to find its cause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// As IAM names it: `ec2:CreateFleet`.
    pub action: &'static str,
    /// AWS's code; empty when there was no answer that could be read.
    pub code: String,
    pub message: String,
    /// The HTTP status; 0 when there was no answer at all.
    pub status: u16,
    pub request_id: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.action)?;
        if !self.code.is_empty() {
            write!(f, "{}: ", self.code)?;
        }
        f.write_str(&self.message)?;
        if let Some(id) = &self.request_id {
            write!(f, " (request {id})")?;
        }
        Ok(())
    }
}

impl Failure {
    pub fn new(action: &'static str, code: &str, message: &str) -> Self {
        Self { action, code: code.to_owned(), message: message.to_owned(), status: 400, request_id: None }
    }

    pub fn is_not_found(&self) -> bool {
        const CODES: [&str; 8] = [
            "InvalidCapacityReservationId.NotFound",
            "InvalidInstanceID.NotFound",
            "InvalidLaunchTemplateName.NotFoundException",
            "InvalidLaunchTemplateId.NotFound",
            "QueueDoesNotExist",
            "AWS.SimpleQueueService.NonExistentQueue",
            "NoSuchEntity",
            "ParameterNotFound",
        ];
        CODES.contains(&self.code.as_str())
    }

    /// Whether the caller may not do this. EC2, IAM and the others say it in different words.
    pub fn is_denied(&self) -> bool {
        const CODES: [&str; 6] = [
            "UnauthorizedOperation",
            "AccessDenied",
            "AccessDeniedException",
            "AuthFailure",
            "Client.UnauthorizedOperation",
            "AuthorizationError",
        ];
        CODES.contains(&self.code.as_str())
    }

    /// A dry run that would have succeeded.
    pub fn is_dry_run_passed(&self) -> bool {
        self.code == "DryRunOperation"
    }

    pub fn is_throttled(&self) -> bool {
        const CODES: [&str; 6] = [
            "RequestLimitExceeded",
            "Throttling",
            "ThrottlingException",
            "TooManyRequestsException",
            "RequestThrottled",
            "SlowDown",
        ];
        CODES.contains(&self.code.as_str()) || self.status == 429
    }

    pub fn is_server_error(&self) -> bool {
        self.status >= 500 || self.status == 0
    }
}
