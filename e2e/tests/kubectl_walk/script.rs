//! The steps of the walk, read from text.

/// One line of the script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A heading.
    Section(String),
    Run {
        how: How,
        line: String,
        arguments: Vec<String>,
    },
    /// Starts and goes on.
    Watch {
        line: String,
        arguments: Vec<String>,
    },
    /// Ends the watch after so many lines.
    Watched(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Once,
    /// Lines below the first in any order.
    Sorted,
    LastLine,
    /// Again and again until the output is this.
    Until(String),
    /// Again and again until it ends well.
    UntilSuccess,
}

pub(crate) fn read(script: &str) -> Vec<Step> {
    script.lines().filter_map(read_line).collect()
}

fn read_line(line: &str) -> Option<Step> {
    let line = line.trim();
    if let Some(title) = line.strip_prefix("## ") {
        return Some(Step::Section(title.to_owned()));
    }
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    if let Some(count) = line.strip_prefix("watched ") {
        return Some(Step::Watched(count.parse().unwrap_or_else(|_| panic!("no count: {line}"))));
    }
    let (how, command) = line.split_once("$ kubectl ").unwrap_or_else(|| panic!("no step: {line}"));
    let (how, line, arguments) = (how.trim(), format!("kubectl {command}"), words(command));
    let how = match how {
        "" => How::Once,
        "sorted" => How::Sorted,
        "last" => How::LastLine,
        "watch" => return Some(Step::Watch { line, arguments }),
        until => match until.strip_prefix("until ") {
            Some("success") => How::UntilSuccess,
            Some("nothing") => How::Until(String::new()),
            Some(word) => How::Until(word.to_owned()),
            None => panic!("no way to run a step: {until}"),
        },
    };
    Some(Step::Run { how, line, arguments })
}

/// Splits at spaces, but not within single quotes or braces.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut is_quoted, mut depth) = (false, 0_u32);
    for c in command.chars() {
        match c {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted && depth == 0 => {
                words.push(std::mem::take(&mut word));
            }
            c => {
                match c {
                    '{' if !is_quoted => depth += 1,
                    '}' if !is_quoted => depth = depth.saturating_sub(1),
                    _ => {}
                }
                word.push(c);
            }
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn a_line_is_split_as_a_shell_would() {
    assert_eq!(
        words("patch x -p '{\"a\": [1, 2]}' -o jsonpath={.a b}[] --for='x y'=z"),
        ["patch", "x", "-p", "{\"a\": [1, 2]}", "-o", "jsonpath={.a b}[]", "--for=x y=z"]
    );
}
