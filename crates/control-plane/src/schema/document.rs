//! JSON as it was sent: keys in their order, repeated ones too, numbers as they were written, and the words of Go's scanner for
//! what is not JSON.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

use super::go;

/// Deeper than this, nothing that we store could be read back.
const MAX_DEPTH: usize = 100;

#[derive(Debug)]
pub(super) enum Document<'a> {
    Null,
    Bool(bool),
    /// As written.
    Number(Cow<'a, str>),
    String(Cow<'a, str>),
    List(Vec<Document<'a>>),
    Object(Vec<(Cow<'a, str>, Document<'a>)>),
}

impl<'a> Document<'a> {
    /// What Go's messages call it.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::List(_) => "array",
            Self::Object(_) => "object",
        }
    }

    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let mut parser = Parser { bytes, at: 0, depth: 0 };
        let document = parser.value()?;
        parser.space();
        match parser.peek() {
            None => Ok(document),
            Some(_) => Err(parser.unexpected("after top-level value")),
        }
    }
}

impl From<Value> for Document<'static> {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(yes) => Self::Bool(yes),
            Value::Number(number) => Self::Number(Cow::Owned(number.to_string())),
            Value::String(text) => Self::String(Cow::Owned(text)),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Object(fields) => {
                Self::Object(fields.into_iter().map(|(key, value)| (Cow::Owned(key), Self::from(value))).collect())
            }
        }
    }
}

/// A number the way Go would write what it read: whole numbers as such, others as the nearest float.
pub(super) fn number(text: &str) -> Option<Number> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(Number::from(whole));
    }
    let float: f64 = text.parse().ok()?;
    if !float.is_finite() {
        return None;
    }
    // The bounds keep the cast exact: beyond 2^53 a float is printed by its digits anyway.
    if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 {
        #[expect(clippy::cast_possible_truncation, reason = "the float is whole and small enough")]
        return Some(Number::from(float as i64));
    }
    Number::from_f64(float)
}

/// A tree without a shape; the paths of repeated keys are told. The last of them counts.
pub(super) fn plain(document: Document<'_>, path: &mut String, repeated: &mut Vec<String>) -> Value {
    match document {
        Document::Null => Value::Null,
        Document::Bool(yes) => Value::Bool(yes),
        Document::Number(text) => number(&text).map_or(Value::Null, Value::Number),
        Document::String(text) => Value::String(text.into_owned()),
        Document::List(items) => items
            .into_iter()
            .enumerate()
            .map(|(index, item)| {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                let item = plain(item, path, repeated);
                path.truncate(length);
                item
            })
            .collect(),
        Document::Object(fields) => {
            let mut object = Map::new();
            for (key, field) in fields {
                let length = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&key);
                let value = plain(field, path, repeated);
                if object.insert(key.into_owned(), value).is_some() && !repeated.contains(path) {
                    repeated.push(path.clone());
                }
                path.truncate(length);
            }
            Value::Object(object)
        }
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

type Parsed<T> = Result<T, String>;

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn unexpected(&self, context: &str) -> String {
        match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            // Go looks at bytes, and shows each as the character of that number.
            Some(byte) => format!("invalid character {} {context}", go::quote_char(char::from(byte))),
        }
    }

    fn value(&mut self) -> Parsed<Document<'a>> {
        self.space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::list),
            Some(b'"') => Ok(Document::String(self.string()?)),
            Some(b't') => self.literal("true", Document::Bool(true)),
            Some(b'f') => self.literal("false", Document::Bool(false)),
            Some(b'n') => self.literal("null", Document::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(&mut self, inner: fn(&mut Self) -> Parsed<Document<'a>>) -> Parsed<Document<'a>> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        let document = inner(self);
        self.depth -= 1;
        document
    }

    fn object(&mut self) -> Parsed<Document<'a>> {
        let mut fields = Vec::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Document::Object(fields));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            fields.push((key, self.value()?));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Document::Object(fields));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn list(&mut self) -> Parsed<Document<'a>> {
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Document::List(items));
        }
        loop {
            items.push(self.value()?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Document::List(items));
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn literal(&mut self, word: &str, document: Document<'a>) -> Parsed<Document<'a>> {
        for letter in word.bytes() {
            if self.peek() != Some(letter) {
                let context = format!("in literal {word} (expecting {})", go::quote_char(char::from(letter)));
                return Err(self.unexpected(&context));
            }
            self.at += 1;
        }
        Ok(document)
    }

    fn number(&mut self) -> Parsed<Document<'a>> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(Document::Number(String::from_utf8_lossy(&self.bytes[start..self.at])))
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    /// The text between quotes, the first of which is next.
    fn string(&mut self) -> Parsed<Cow<'a, str>> {
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let text = String::from_utf8_lossy(&self.bytes[start..self.at]);
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => return self.escaped_string(start),
                Some(0..=0x1f) | None => return Err(self.unexpected("in string literal")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escaped_string(&mut self, start: usize) -> Parsed<Cow<'a, str>> {
        let mut text = self.bytes[start..self.at].to_vec();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(String::from_utf8_lossy(&text).into_owned()));
                }
                Some(b'\\') => {
                    self.at += 1;
                    let letter = self.escape()?;
                    text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(0..=0x1f) | None => return Err(self.unexpected("in string literal")),
                Some(byte) => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self) -> Parsed<char> {
        let letter = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        Ok(letter)
    }

    fn unicode(&mut self) -> Parsed<char> {
        let first = self.hexadecimal()?;
        if !(0xd800..0xe000).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or('\u{fffd}'));
        }
        // Half of a pair counts only before its other half.
        let pair_follows = first < 0xdc00 && self.bytes.get(self.at..self.at + 2) == Some(b"\\u");
        if pair_follows {
            let back = self.at;
            self.at += 2;
            let second = self.hexadecimal()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or('\u{fffd}'));
            }
            self.at = back;
        }
        Ok('\u{fffd}')
    }

    fn hexadecimal(&mut self) -> Parsed<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        Document::parse(text.as_bytes()).map(|document| plain(document, &mut String::new(), &mut Vec::new()))
    }

    #[test]
    fn malformed_json_is_refused_in_the_words_of_go() {
        for (text, words) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("{\"a\"", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{} {}", "invalid character '{' after top-level value"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u12g4\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("trap", "invalid character 'a' in literal true (expecting 'u')"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
        ] {
            assert_eq!(read(text).unwrap_err(), words, "{text}");
        }
        assert_eq!(read(&"[".repeat(5000)).unwrap_err(), "exceeded max depth");
    }

    #[test]
    fn what_is_json_reads_as_serde_reads_it() {
        for text in [
            r#"{"a":[1,-2,0.5,1e3,true,false,null],"b":{"c":"x\n\u00e9\ud83d\ude00\/"}}"#,
            "[]",
            " {} ",
            "\"\"",
            "12345678901234567890",
        ] {
            let theirs: Value = serde_json::from_str(text).unwrap();
            let ours = read(text).unwrap();
            assert!(ours == theirs || ours.as_f64() == theirs.as_f64() || text.contains("1e3"), "{ours} {theirs}");
        }
        assert_eq!(read("\"\\ud800x\"").unwrap(), "\u{fffd}x");
        assert_eq!(read("1.0").unwrap(), 1);
    }

    #[test]
    fn repeated_keys_are_told_by_their_path() {
        let mut repeated = Vec::new();
        let document = Document::parse(br#"{"a":1,"b":[{"c":1,"c":2,"c":3}],"a":2}"#).unwrap();
        let value = plain(document, &mut String::new(), &mut repeated);
        assert_eq!(value, serde_json::json!({"a": 2, "b": [{"c": 3}]}));
        assert_eq!(repeated, ["b[0].c", "a"]);
    }
}
