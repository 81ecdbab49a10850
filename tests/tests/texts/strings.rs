//! The strings of a source file that people may read: those of several words, outside of tests, attributes and assertions; and of
//! attributes the messages of errors.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::LitStr;

/// Macros and methods whose strings are for developers: they report what would be a bug.
const FOR_DEVELOPERS: [&str; 9] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "expect",
    "expect_err",
    "panic",
    "unreachable",
];

/// Strings of `source`, in order, each on one line.
pub(super) fn of_source(source: &str) -> Vec<String> {
    let tokens: TokenStream = source.parse().expect("sources that compile are tokens");
    let mut strings = Vec::new();
    collect(tokens, &mut strings);
    strings
}

fn collect(tokens: TokenStream, strings: &mut Vec<String>) {
    let mut tokens = tokens.into_iter().peekable();
    // Name before a group, a `!` between them left out.
    let mut name = String::new();
    // An attribute says that the next item is for tests.
    let mut is_for_tests = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                if matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == '!') {
                    tokens.next();
                }
                if let Some(TokenTree::Group(attribute)) = tokens.next() {
                    let text = attribute.to_string().replace(' ', "");
                    is_for_tests |= text.contains("cfg(test)") || text == "[test]";
                    // `thiserror`: the message of an error.
                    if text.starts_with("[error(") {
                        collect(attribute.stream(), strings);
                    }
                }
            }
            TokenTree::Group(group) => {
                let ends_item = group.delimiter() == Delimiter::Brace;
                if !is_for_tests && !FOR_DEVELOPERS.contains(&&*name) {
                    collect(group.stream(), strings);
                }
                is_for_tests &= !ends_item;
                name.clear();
            }
            TokenTree::Ident(ident) => name = ident.to_string(),
            TokenTree::Punct(punct) => {
                is_for_tests &= punct.as_char() != ';';
                if punct.as_char() != '!' {
                    name.clear();
                }
            }
            TokenTree::Literal(literal) if !is_for_tests => strings.extend(sentence(&literal.to_string())),
            TokenTree::Literal(_) => {}
        }
    }
}

/// A string of several words; `None` for other literals.
fn sentence(literal: &str) -> Option<String> {
    let value = syn::parse_str::<LitStr>(literal).ok()?.value();
    let is_word = |word: &&str| word.chars().filter(|char| char.is_alphabetic()).count() > 1;
    let words = value.split_whitespace().filter(is_word).count();
    (words > 1).then(|| value.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn strings_of_tests_attributes_and_assertions_are_left_out() {
    let source = r##"
        //! A comment with words.
        #[error("an error says {why}")] struct A;
        fn a() { b("first, it says"); assert!(true, "no {}", "user sees"); x.expect("it is there"); "word"; r#"two
            lines"#; }
        #[cfg(test)] mod tests { const A: &str = "not this one"; }
        #[cfg(test)] use a::b;
        const B: &str = "and this";
    "##;
    assert_eq!(of_source(source), ["an error says {why}", "first, it says", "two lines", "and this"]);
}
