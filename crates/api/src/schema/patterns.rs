//! The regular expressions of the schema. An API server *searches* with them, so a pattern without `^` or `$` is as
//! loose as it looks.

/// An optional DNS subdomain and a slash, then a name: how Kubernetes spells label and taint keys.
pub(crate) const QUALIFIED_NAME: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// A label value; the empty one is fine.
pub(crate) const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

pub(crate) const QUANTITY: &str = concat!(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
);

pub(crate) const DURATION: &str = r"^([0-9]+(s|m|h))+$";
pub(crate) const DURATION_OR_NEVER: &str = r"^(([0-9]+(s|m|h))+|Never)$";

/// A budget lasts hours and minutes; `0s` may trail because Go prints it.
pub(crate) const BUDGET_DURATION: &str = r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$";
pub(crate) const BUDGET_NODES: &str = r"^((100|[0-9]{1,2})%|[0-9]+)$";

/// Looser than it means to be: `^` binds to the first branch and `$` to the second, so `@daily nonsense` and six fields
/// pass. The schedule parser ([`crate::cron`]) is the one that knows.
pub(crate) const BUDGET_SCHEDULE: &str =
    r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$";

pub(crate) const PRICE: &str = r"^\d+(\.\d+)?$";
/// A signed number, or a signed percentage that takes at most everything away.
pub(crate) const PRICE_ADJUSTMENT: &str = r"^([+-]\d*\.?\d+|\+\d*\.?\d+%|-\d{1,2}(\.\d+)?%|-100%)$";

pub(crate) const CONDITION_TYPE: &str = QUALIFIED_NAME;
pub(crate) const CONDITION_REASON: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
pub(crate) const CONDITION_REASON_OR_EMPTY: &str = r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?)?$";

/// Volume sizes EC2 could mean. The empty branches accept a bare `Ti` or `T`, and `18Ti` falls through: both are part
/// of the contract.
pub(crate) const VOLUME_SIZE: &str = concat!(
    r"^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi",
    r"|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G",
    r"|([1-9]||[1-5][0-7]|58)Ti",
    r"|([1-9]||[1-5][0-9]|6[0-3]|64)T)$"
);

pub(crate) const SUBNET_ID: &str = "subnet-[0-9a-z]+";
pub(crate) const SECURITY_GROUP_ID: &str = "sg-[0-9a-z]+";
pub(crate) const AMI_ID: &str = "ami-[0-9a-z]+";
pub(crate) const CAPACITY_RESERVATION_ID: &str = "^cr-[0-9a-z]+$";
pub(crate) const PLACEMENT_GROUP_ID: &str = "^pg-[0-9a-z]+$";
pub(crate) const ACCOUNT_ID: &str = "^[0-9]{12}$";
