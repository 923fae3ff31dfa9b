//! MIME archives, as cloud-init reads them: several pieces of user data in one.
//!
//! Only as much of MIME as archives need: headers, a boundary, bodies. A body is handed on as it came, encoded or not.

use super::BootstrapError;

/// What cloud-init runs.
pub(super) const SHELL_SCRIPT: &str = "Content-Type: text/x-shellscript; charset=\"us-ascii\"";

/// One piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Whole lines.
    pub(super) headers: Vec<String>,
    pub(super) body: String,
}

impl Part {
    pub(super) fn new(content_type: &str, body: impl Into<String>) -> Self {
        Self { headers: vec![content_type.to_owned()], body: body.into() }
    }

    /// A script of the user. One that does not say what runs it is for bash: cloud-init could not run it at all.
    pub(super) fn script(text: &str) -> Self {
        let first = if text.starts_with('#') { "" } else { "#!/bin/bash\n" };
        Self::new(SHELL_SCRIPT, format!("{first}{text}"))
    }
}

/// Whether user data is meant to be an archive.
pub(super) fn is_mime(text: &str) -> bool {
    ["MIME-Version:", "Content-Type:"].into_iter().any(|header| text.trim_start().starts_with(header))
}

/// Puts parts together. The boundary is `//`, or a longer one where a line of a part looks like that.
pub(super) fn archive(parts: &[Part]) -> String {
    let mut boundary = "//".to_owned();
    while parts.iter().any(|part| part.body.lines().any(|line| line.starts_with(&format!("--{boundary}")))) {
        boundary.push('=');
    }
    let mut out = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n");
    for part in parts {
        out.push_str(&format!("--{boundary}\n"));
        for header in &part.headers {
            out.push_str(header);
            out.push('\n');
        }
        out.push('\n');
        out.push_str(&part.body);
        out.push('\n');
    }
    out.push_str(&format!("--{boundary}--"));
    out
}

/// Takes an archive apart. A message that is no archive is its own only part.
pub(super) fn parts_of(text: &str) -> Result<Vec<Part>, BootstrapError> {
    let mut lines = Lines::new(text);
    lines.skip_blank();
    let headers = lines.headers()?;
    let Some(content_type) = headers.iter().find_map(|header| value_of(header, "content-type")) else {
        return Err(lines.error("there is no Content-Type header"));
    };
    let (media_type, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !media_type.trim().to_ascii_lowercase().starts_with("multipart/") {
        let headers = headers.iter().filter(|header| value_of(header, "mime-version").is_none()).cloned().collect();
        return Ok(vec![Part { headers, body: lines.rest() }]);
    }
    match boundary(parameters) {
        Some(boundary) => lines.parts(&boundary),
        None => Err(lines.error(&format!("{} has no boundary", media_type.trim()))),
    }
}

/// What a header line says, if it is the one of that name.
fn value_of<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let (found, value) = header.split_once(':')?;
    found.trim().eq_ignore_ascii_case(name).then(|| value.trim())
}

fn boundary(parameters: &str) -> Option<String> {
    let (_, value) = parameters
        .split([';', '\n'])
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"))?;
    let value = value.trim();
    let unquoted = value.strip_prefix('"').map_or(value, |rest| rest.split('"').next().unwrap_or_default());
    (!unquoted.is_empty()).then(|| unquoted.to_owned())
}

/// A reader that knows where it is.
struct Lines<'a> {
    lines: Vec<&'a str>,
    next: usize,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        Self { lines: text.lines().collect(), next: 0 }
    }

    fn read(&mut self) -> Option<&'a str> {
        let line = self.lines.get(self.next).copied()?;
        self.next += 1;
        Some(line)
    }

    fn skip_blank(&mut self) {
        while self.lines.get(self.next).is_some_and(|line| line.trim().is_empty()) {
            self.next += 1;
        }
    }

    fn rest(&mut self) -> String {
        let rest = self.lines.get(self.next..).unwrap_or_default().join("\n");
        self.next = self.lines.len();
        rest
    }

    /// At the line that was read last.
    fn error(&self, why: &str) -> BootstrapError {
        BootstrapError::Mime { line: self.next.max(1), why: why.to_owned() }
    }

    /// Up to the empty line, which is read too.
    fn headers(&mut self) -> Result<Vec<String>, BootstrapError> {
        let mut headers: Vec<String> = Vec::new();
        while let Some(line) = self.read().filter(|line| !line.is_empty()) {
            let name = line.split_once(':').map(|(name, _)| name);
            let continues = line.starts_with([' ', '\t']);
            match (headers.last_mut(), name) {
                (Some(last), _) if continues => *last = format!("{last}\n{line}"),
                (_, Some(name)) if !name.is_empty() && !name.contains([' ', '\t']) => headers.push(line.to_owned()),
                _ => {
                    let why =
                        format!("a header such as `Content-Type: …` or an empty line was expected, found {line:?}");
                    return Err(self.error(&why));
                }
            }
        }
        Ok(headers)
    }

    fn parts(&mut self, boundary: &str) -> Result<Vec<Part>, BootstrapError> {
        let (delimiter, end) = (format!("--{boundary}"), format!("--{boundary}--"));
        let mut parts = Vec::new();
        // What stands before the first delimiter is for people whose reader knows no MIME.
        let mut at = loop {
            match self.read().map(str::trim_end) {
                Some(line) if line == delimiter || line == end => break line,
                Some(_) => {}
                None => return Err(self.error(&format!("the line {delimiter} that begins a part is missing"))),
            }
        };
        while at != end {
            let headers = self.headers()?;
            let mut body = Vec::new();
            at = loop {
                match self.read() {
                    Some(line) if line.trim_end() == delimiter || line.trim_end() == end => break line.trim_end(),
                    Some(line) => body.push(line),
                    None => return Err(self.error(&format!("the line {end} that ends the archive is missing"))),
                }
            };
            parts.push(Part { headers, body: body.join("\n") });
        }
        Ok(parts)
    }
}
