//! Which functions there are, on what, and what they yield.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::types::Type;

pub(super) struct Signature {
    pub(super) is_member: bool,
    /// With the value that a member is called on first.
    pub(super) takes: Vec<Type<'static>>,
    pub(super) yields: Type<'static>,
}

/// `name` takes yields; a leading dot marks a call on a value. `A` and `B` are any type, the same at each place.
const TABLE: &str = "
!_ (bool) bool
-_ (int) int | (double) double | (duration) duration
@in (A, list(A)) bool | (A, map(A,B)) bool
_&&_ (bool, bool) bool
_||_ (bool, bool) bool
_?_:_ (bool, A, A) A
_==_ (A, A) bool
_!=_ (A, A) bool
_<_ (bool, bool) bool | (int, int) bool | (uint, uint) bool | (double, double) bool | (int, uint) bool | (int, double) bool | (uint, int) bool | (uint, double) bool | (double, int) bool | (double, uint) bool | (string, string) bool | (bytes, bytes) bool | (timestamp, timestamp) bool | (duration, duration) bool
_+_ (int, int) int | (uint, uint) uint | (double, double) double | (string, string) string | (bytes, bytes) bytes | (list(A), list(A)) list(A) | (duration, duration) duration | (timestamp, duration) timestamp | (duration, timestamp) timestamp
_-_ (int, int) int | (uint, uint) uint | (double, double) double | (duration, duration) duration | (timestamp, duration) timestamp | (timestamp, timestamp) duration
_*_ (int, int) int | (uint, uint) uint | (double, double) double
_/_ (int, int) int | (uint, uint) uint | (double, double) double
_%_ (int, int) int | (uint, uint) uint
_[_] (list(A), int) A | (map(A,B), A) B | (optional(list(A)), int) optional(A) | (optional(map(A,B)), A) optional(B)
_[?_] (list(A), int) optional(A) | (optional(list(A)), int) optional(A) | (map(A,B), A) optional(B) | (optional(map(A,B)), A) optional(B)
size (string) int | (bytes) int | (list(A)) int | (map(A,B)) int | .(string) int | .(bytes) int | .(list(A)) int | .(map(A,B)) int
dyn (A) dyn
type (A) type
int (int) int | (uint) int | (double) int | (string) int | (timestamp) int | (duration) int
uint (uint) uint | (int) uint | (double) uint | (string) uint
double (double) double | (int) double | (uint) double | (string) double
string (string) string | (bool) string | (int) string | (uint) string | (double) string | (bytes) string | (timestamp) string | (duration) string
bytes (bytes) bytes | (string) bytes
bool (bool) bool | (string) bool
duration (duration) duration | (string) duration | (int) duration
timestamp (timestamp) timestamp | (string) timestamp | (int) timestamp
contains .(string, string) bool
startsWith .(string, string) bool
endsWith .(string, string) bool
matches (string, string) bool | .(string, string) bool
find .(string, string) string
findAll .(string, string) list(string) | .(string, string, int) list(string)
charAt .(string, int) string
indexOf .(string, string) int | .(string, string, int) int | .(list(A), A) int
lastIndexOf .(string, string) int | .(string, string, int) int | .(list(A), A) int
join .(list(string)) string | .(list(string), string) string
lowerAscii .(string) string
upperAscii .(string) string
replace .(string, string, string) string | .(string, string, string, int) string
split .(string, string) list(string) | .(string, string, int) list(string)
substring .(string, int) string | .(string, int, int) string
trim .(string) string
reverse .(list(A)) list(A)
format .(string, list(dyn)) string
strings.quote (string) string
isSorted .(list(A)) bool
sum .(list(int)) int | .(list(uint)) uint | .(list(double)) double | .(list(duration)) duration
min .(list(A)) A
max .(list(A)) A
distinct .(list(A)) list(A)
flatten .(list(list(A))) list(A) | .(list(dyn), int) list(dyn)
slice .(list(A), int, int) list(A)
sort .(list(A)) list(A)
first .(list(A)) optional(A)
last .(list(A)) optional(A)
lists.range (int) list(int)
sets.contains (list(A), list(A)) bool
sets.equivalent (list(A), list(A)) bool
sets.intersects (list(A), list(A)) bool
getFullYear .(timestamp) int | .(timestamp, string) int
getMonth .(timestamp) int | .(timestamp, string) int
getDate .(timestamp) int | .(timestamp, string) int
getDayOfMonth .(timestamp) int | .(timestamp, string) int
getDayOfWeek .(timestamp) int | .(timestamp, string) int
getDayOfYear .(timestamp) int | .(timestamp, string) int
getHours .(timestamp) int | .(timestamp, string) int | .(duration) int
getMinutes .(timestamp) int | .(timestamp, string) int | .(duration) int
getSeconds .(timestamp) int | .(timestamp, string) int | .(duration) int
getMilliseconds .(timestamp) int | .(timestamp, string) int | .(duration) int
optional.of (A) optional(A)
optional.none () optional(A)
optional.ofNonZeroValue (A) optional(A)
hasValue .(optional(A)) bool
value .(optional(A)) A
orValue .(optional(A), A) A
or .(optional(A), optional(A)) optional(A)
quantity (string) quantity
isQuantity (string) bool
sign (quantity) int
isInteger .(quantity) bool
asInteger .(quantity) int
asApproximateFloat .(quantity) double
add .(quantity, quantity) quantity | .(quantity, int) quantity
sub .(quantity, quantity) quantity | .(quantity, int) quantity
isLessThan .(quantity, quantity) bool | .(semver, semver) bool
isGreaterThan .(quantity, quantity) bool | .(semver, semver) bool
compareTo .(quantity, quantity) int | .(semver, semver) int
ip (string) ip | .(cidr) ip
isIP (string) bool
ip.isCanonical (string) bool
family .(ip) int
isUnspecified .(ip) bool
isLoopback .(ip) bool
isLinkLocalMulticast .(ip) bool
isLinkLocalUnicast .(ip) bool
isGlobalUnicast .(ip) bool
cidr (string) cidr
isCIDR (string) bool
containsIP .(cidr, string) bool | .(cidr, ip) bool
containsCIDR .(cidr, string) bool | .(cidr, cidr) bool
masked .(cidr) cidr
prefixLength .(cidr) int
url (string) url
isURL (string) bool
getScheme .(url) string
getHost .(url) string
getHostname .(url) string
getPort .(url) string
getEscapedPath .(url) string
getQuery .(url) map(string,list(string))
semver (string) semver | (string, bool) semver
isSemver (string) bool | (string, bool) bool
major .(semver) int
minor .(semver) int
patch .(semver) int
format.named (string) optional(format)
format.dns1123Label () format
format.dns1123Subdomain () format
format.dns1035Label () format
format.dns1123LabelPrefix () format
format.dns1123SubdomainPrefix () format
format.dns1035LabelPrefix () format
format.qualifiedName () format
format.labelValue () format
format.uri () format
format.uuid () format
format.byte () format
format.date () format
format.datetime () format
validate .(format, string) optional(list(string))
";

static SIGNATURES: LazyLock<BTreeMap<&'static str, Vec<Signature>>> = LazyLock::new(|| {
    let mut known = BTreeMap::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let (name, signatures) = line.split_once(' ').expect("a row has a name and signatures");
        known.insert(name, signatures.split('|').map(|text| read(text.trim())).collect::<Vec<_>>());
    }
    known
});

/// The signatures of a function. The four orders have the same ones.
pub(super) fn of(name: &str) -> Option<&'static [Signature]> {
    let name = match name {
        "_<=_" | "_>_" | "_>=_" => "_<_",
        name => name,
    };
    SIGNATURES.get(name).map(Vec::as_slice)
}

fn read(text: &str) -> Signature {
    let is_member = text.starts_with('.');
    let (takes, yields) = text.rsplit_once(") ").expect("a signature says what it yields");
    let takes = takes.trim_start_matches('.').strip_prefix('(').expect("a signature has parentheses");
    Signature { is_member, takes: split(takes).into_iter().map(read_type).collect(), yields: read_type(yields) }
}

/// At the commas that are in no parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.extend(text.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..).filter(|rest| !rest.trim().is_empty()));
    parts.into_iter().map(str::trim).collect()
}

fn read_type(text: &str) -> Type<'static> {
    if let Some((name, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let inner = split(inner);
        let part = |idx: usize| read_type(inner.get(idx).copied().expect("a generic type has its parts"));
        return match name {
            "list" => Type::list(part(0)),
            "map" => Type::map(part(0), part(1)),
            "optional" => Type::optional(part(0)),
            _ => panic!("an unknown generic type: {text}"),
        };
    }
    match text {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "type" => Type::OfTypes,
        "quantity" => Type::Library("kubernetes.Quantity"),
        "ip" => Type::Library("net.IP"),
        "cidr" => Type::Library("net.CIDR"),
        "url" => Type::Library("kubernetes.URL"),
        "semver" => Type::Library("kubernetes.Semver"),
        "format" => Type::Library("kubernetes.NamedFormat"),
        "A" => Type::Parameter('A'),
        "B" => Type::Parameter('B'),
        _ => panic!("an unknown type: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_read() {
        assert_eq!(SIGNATURES.len(), TABLE.trim().lines().count());
        let size = of("size").unwrap();
        assert!(size.iter().any(|signature| signature.is_member) && size.iter().any(|signature| !signature.is_member));
        assert_eq!(of("getQuery").unwrap()[0].yields.to_string(), "map(string, list(string))");
    }
}
