//! Parser of the text format of protocol buffers. It needs no schema: Triton's fields change with every release, and
//! unknown ones are to be listed, not refused.
//!
//! Grammar: protobuf.dev, "Text Format Language Specification".

/// Maximum nesting of messages: Triton's schema has 5 levels; a deeper file is damaged.
const DEPTH_MAX: usize = 32;

/// Message: its fields in order. A repeated field has one entry for each value.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Message {
    pub fields: Vec<(String, Value)>,
}

/// Value of a field.
#[derive(Debug, PartialEq)]
pub(super) enum Value {
    /// Number, name, or contents of a string.
    Scalar(String),
    Message(Message),
}

impl Message {
    /// Iterates over the scalars of the field `name`.
    pub(super) fn scalars<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.values(name)
            .filter_map(|value| if let Value::Scalar(text) = value { Some(text.as_str()) } else { None })
    }

    /// Returns the last scalar of the field `name`, which is the one that counts.
    pub(super) fn scalar<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.scalars(name).last()
    }

    /// Iterates over the messages of the field `name`.
    pub(super) fn messages<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Message> {
        self.values(name)
            .filter_map(|value| if let Value::Message(message) = value { Some(message) } else { None })
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.fields.iter().filter(move |(field, _)| field == name).map(|(_, value)| value)
    }
}

/// Parses a whole file. An error names the line and its cause.
pub(super) fn parse(text: &str) -> Result<Message, String> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0 };
    parser.message(None, 0)
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Text(String),
    Mark(char),
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, String> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' => line += 1,
            '#' => while rest.next_if(|c| *c != '\n').is_some() {},
            '"' | '\'' => tokens.push((line, Token::Text(quoted(&mut rest, c, line)?))),
            c if c.is_whitespace() => {}
            c if "{}[]<>:,;".contains(c) => tokens.push((line, Token::Mark(c))),
            c if c.is_alphanumeric() || "_-+.".contains(c) => {
                let mut name = String::from(c);
                while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || "_-+.".contains(*c)) {
                    name.push(c);
                }
                tokens.push((line, Token::Name(name)));
            }
            c => return Err(format!("line {line}: unexpected `{}`", c.escape_default())),
        }
    }
    Ok(tokens)
}

fn quoted(
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    quote: char,
    line: usize,
) -> Result<String, String> {
    let mut text = String::new();
    while let Some(c) = rest.next() {
        match c {
            c if c == quote => return Ok(text),
            '\n' => break,
            '\\' => match rest.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some(c @ ('\\' | '"' | '\'' | '?')) => text.push(c),
                // Escapes of byte values are not supported: no path or name in these files has them.
                _ => return Err(format!("line {line}: unknown escape sequence in a string")),
            },
            c => text.push(c),
        }
    }
    Err(format!("line {line}: unterminated string"))
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.next += 1;
        token
    }

    fn take_mark(&mut self, marks: &str) -> Option<char> {
        match self.peek() {
            Some(Token::Mark(mark)) if marks.contains(*mark) => {
                let mark = *mark;
                self.next += 1;
                Some(mark)
            }
            _ => None,
        }
    }

    /// Returns the line of the latest token, from 1.
    fn line(&self) -> usize {
        let seen = self.tokens.get(self.next.saturating_sub(1)).or(self.tokens.last());
        seen.map_or(1, |(line, _)| *line)
    }

    fn fault<T>(&self, wanted: &str) -> Result<T, String> {
        let line = self.line();
        if self.next > self.tokens.len() {
            return Err(format!("line {line}: the file ends where {wanted} should be"));
        }
        Err(format!("line {line}: {wanted} should be here"))
    }

    /// Parses fields up to `end`, or to the end of the file.
    fn message(&mut self, end: Option<char>, depth: usize) -> Result<Message, String> {
        if depth > DEPTH_MAX {
            return Err(format!("line {}: nested too deeply", self.line()));
        }
        let mut message = Message::default();
        loop {
            match (self.take(), end) {
                (None, None) => return Ok(message),
                (Some(Token::Mark(mark)), Some(end)) if mark == end => return Ok(message),
                (Some(Token::Name(name)), _) => {
                    self.values(&name, &mut message, depth)?;
                    self.take_mark(",;");
                }
                (_, None) => return self.fault("a field's name"),
                (_, Some(end)) => return self.fault(&format!("a field's name or `{end}`")),
            }
        }
    }

    /// Parses the value or list of values after a field's name.
    fn values(&mut self, name: &str, message: &mut Message, depth: usize) -> Result<(), String> {
        let colon = self.take_mark(":").is_some();
        if self.take_mark("[").is_none() {
            let value = self.value(colon, depth)?;
            message.fields.push((name.to_owned(), value));
            return Ok(());
        }
        if self.take_mark("]").is_some() {
            return Ok(());
        }
        loop {
            let value = self.value(true, depth)?;
            message.fields.push((name.to_owned(), value));
            match self.take() {
                Some(Token::Mark(']')) => return Ok(()),
                Some(Token::Mark(',')) => {}
                _ => return self.fault("`,` or `]`"),
            }
        }
    }

    /// Parses one value. Only a message may follow a name without a colon.
    fn value(&mut self, scalar: bool, depth: usize) -> Result<Value, String> {
        match self.take() {
            Some(Token::Mark('{')) => self.message(Some('}'), depth + 1).map(Value::Message),
            Some(Token::Mark('<')) => self.message(Some('>'), depth + 1).map(Value::Message),
            Some(Token::Name(name)) if scalar => Ok(Value::Scalar(name)),
            Some(Token::Text(mut text)) if scalar => {
                // Adjacent strings are joined.
                while let Some(Token::Text(more)) = self.peek() {
                    text.push_str(more);
                    self.next += 1;
                }
                Ok(Value::Scalar(text))
            }
            _ if scalar => self.fault("a value"),
            _ => self.fault("`:` or `{`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use proptest::prelude::*;

    #[test]
    fn every_form_of_the_grammar() {
        let text = "
            # a comment
            name: \"a\" 'b' ; max_batch_size: 8,
            input [ { name: \"x\" dims: [ 3, -1 ] }, < name: 'y' dims: 1 dims: 2 > ]
            version_policy { latest { num_versions: 1 } }
            empty: [] flag: true
        ";
        expect![[r#"name="ab" max_batch_size="8" input{name="x" dims="3" dims="-1"} input{name="y" dims="1" dims="2"} version_policy{latest{num_versions="1"}} flag="true""#]]
            .assert_eq(&short(&parse(text).expect("well formed")));
    }

    fn short(message: &Message) -> String {
        let field = |(name, value): &(String, Value)| match value {
            Value::Scalar(text) => format!("{name}={text:?}"),
            Value::Message(message) => format!("{name}{{{}}}", short(message)),
        };
        message.fields.iter().map(field).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn faults_name_their_line() {
        for (text, fault) in [
            ("name: \"a", "line 1: unterminated string"),
            ("a: 1\nb", "line 2: the file ends where `:` or `{` should be"),
            ("a: 1\nb {", "line 2: the file ends where a field's name or `}` should be"),
            ("a: [1, 2", "line 1: the file ends where `,` or `]` should be"),
            ("a: 1 }", "line 1: a field's name should be here"),
            ("a: $", "line 1: unexpected `$`"),
        ] {
            assert_eq!(parse(text), Err(fault.to_owned()), "{text}");
        }
        let deep = "a {".repeat(100_000);
        assert_eq!(parse(&deep), Err("line 1: nested too deeply".to_owned()));
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(text in r#"([a-z0-9_]|[\[\]{}<>:;,"'\\# \n.\-]|.){0,200}"#) {
            let _ = parse(&text);
        }
    }
}
