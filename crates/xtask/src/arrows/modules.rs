//! Modules of a crate, as its source files declare them: which names each defines and imports, and which paths its code
//! uses. Code that is compiled for tests only is left out.
//!
//! Modules that a list declares (`engines! { mod tract: "tract" => ENGINE; }`) are read too. A path inside a macro's arguments counts. A method that is called on a value does not: its name does not say whose it
//! is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, ImplItem, Item, ItemMod, ItemUse, Meta, Token, TraitItem, UseTree, Visibility};

/// Modules of one crate. The first is its root.
pub(super) struct Modules {
    /// Source files, relative to the root's folder.
    pub(super) files: Vec<PathBuf>,
    pub(super) all: Vec<Module>,
}

/// One module: a file, or a block inside one.
pub(super) struct Module {
    /// Index into [`Modules::files`].
    pub(super) file: usize,
    pub(super) parent: Option<usize>,
    /// Modules declared here, by name.
    pub(super) children: Vec<(String, usize)>,
    /// Names defined here.
    pub(super) items: BTreeSet<String>,
    /// Those of them that are macros (`macro_rules!`), which modules below know without a path.
    pub(super) macros: BTreeSet<String>,
    /// Names imported here, each with its path.
    pub(super) imports: Vec<(String, Vec<String>)>,
    /// Modules whose names are all imported here.
    pub(super) globs: Vec<Vec<String>>,
    /// Paths that the code of this module uses. A re-export is no use.
    pub(super) paths: BTreeSet<Vec<String>>,
    /// Macros that it calls by name alone.
    pub(super) macros_called: BTreeSet<String>,
}

/// Reads a source file; `None` where there is none.
pub(super) type Load<'a> = dyn Fn(&Path) -> Result<Option<String>> + 'a;

impl Modules {
    /// Reads the crate whose root is the file `root`.
    pub(super) fn read(root: &Path, load: &Load<'_>) -> Result<Self> {
        let folder = root.parent().context("a source file lies in a folder")?;
        let mut reader = Reader { load, folder, modules: Self { files: Vec::new(), all: Vec::new() } };
        let text = load(root)?.with_context(|| format!("there is no {}", root.display()))?;
        reader.read_file(root, &text, folder, None)?;
        Ok(reader.modules)
    }
}

struct Reader<'a> {
    load: &'a Load<'a>,
    /// Folder of the crate's root.
    folder: &'a Path,
    modules: Modules,
}

impl Reader<'_> {
    /// Reads the module that is the file `path`, whose children lie in the folder `below`.
    fn read_file(&mut self, path: &Path, text: &str, below: &Path, parent: Option<usize>) -> Result<usize> {
        let parsed = syn::parse_file(text).with_context(|| format!("parsing {}", path.display()))?;
        self.modules.files.push(path.strip_prefix(self.folder).unwrap_or(path).to_owned());
        let module = self.add(self.modules.files.len() - 1, parent);
        if !parsed.attrs.iter().any(is_for_tests) {
            self.read_items(module, &parsed.items, path, below)?;
        }
        Ok(module)
    }

    fn add(&mut self, file: usize, parent: Option<usize>) -> usize {
        self.modules.all.push(Module {
            file,
            parent,
            children: Vec::new(),
            items: BTreeSet::new(),
            macros: BTreeSet::new(),
            imports: Vec::new(),
            globs: Vec::new(),
            paths: BTreeSet::new(),
            macros_called: BTreeSet::new(),
        });
        self.modules.all.len() - 1
    }

    fn read_items(&mut self, module: usize, items: &[Item], path: &Path, below: &Path) -> Result<()> {
        for item in items {
            match item {
                Item::Mod(declared) => {
                    if !declared.attrs.iter().any(is_for_tests) {
                        self.read_module(module, declared, path, below)?;
                    }
                }
                Item::Macro(list) if list.ident.is_none() && !list.attrs.iter().any(is_for_tests) => {
                    for (declared, names) in listed_modules(&list.mac.tokens) {
                        let used = names.into_iter().map(|name| vec![declared.unraw().to_string(), name]);
                        self.modules.all[module].paths.extend(used);
                        self.read_module(module, &without_body(declared), path, below)?;
                    }
                    Collector { module: &mut self.modules.all[module] }.visit_item(item);
                }
                item => Collector { module: &mut self.modules.all[module] }.visit_item(item),
            }
        }
        Ok(())
    }

    fn read_module(&mut self, parent: usize, declared: &ItemMod, path: &Path, below: &Path) -> Result<()> {
        let name = declared.ident.unraw().to_string();
        let inside = below.join(&name);
        let child = if let Some((_, items)) = &declared.content {
            let child = self.add(self.modules.all[parent].file, Some(parent));
            self.read_items(child, items, path, &inside)?;
            child
        } else if declared.attrs.iter().any(|attribute| attribute.path().is_ident("path")) {
            bail!("{}: module `{name}` names its file: put it where its name says", path.display());
        } else {
            let candidates = [below.join(format!("{name}.rs")), inside.join("mod.rs")];
            let mut found = None;
            for candidate in candidates {
                found = match found {
                    None => (self.load)(&candidate)?.map(|text| (candidate, text)),
                    found => found,
                };
            }
            let Some((file, text)) = found else {
                bail!("{} declares module `{name}`, which has no file", path.display());
            };
            self.read_file(&file, &text, &inside, Some(parent))?
        };
        self.modules.all[parent].children.push((name, child));
        Ok(())
    }
}

/// Collects what an item defines, imports and uses. What is defined or imported inside a function counts as the
/// module's.
struct Collector<'a> {
    module: &'a mut Module,
}

impl Collector<'_> {
    fn import(&mut self, item: &ItemUse) {
        if item.leading_colon.is_some() {
            return; // Another crate's.
        }
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        for (path, name) in leaves(&item.tree) {
            let Some(name) = name else {
                self.module.globs.push(path);
                continue;
            };
            if !is_reexport {
                self.module.paths.insert(path.clone());
            }
            self.module.imports.push((name, path));
        }
    }

    fn call_macro(&mut self, path: Vec<String>) {
        match path.as_slice() {
            [name] => drop(self.module.macros_called.insert(name.clone())),
            _ => drop(self.module.paths.insert(path)),
        }
    }

    /// Collects the paths among a macro's or an attribute's tokens.
    fn scan(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.scan(group.stream()),
                TokenTree::Ident(first) => {
                    let mut path = vec![first.unraw().to_string()];
                    let start = at;
                    while let Some(segment) = next_segment(&tokens[at + 1..]) {
                        path.push(segment.unraw().to_string());
                        at += 3;
                    }
                    match tokens.get(at + 1..at + 3) {
                        _ if is_member(&tokens, start, at) => {}
                        Some([TokenTree::Punct(mark), TokenTree::Group(_)]) if mark.as_char() == '!' => {
                            self.call_macro(path);
                        }
                        _ => drop(self.module.paths.insert(path)),
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes(item).iter().any(is_for_tests) {
            return;
        }
        if let Item::Use(item) = item {
            return self.import(item);
        }
        let name = defined(item).map(|name| name.unraw().to_string());
        if matches!(item, Item::Macro(_)) {
            self.module.macros.extend(name.clone());
        }
        self.module.items.extend(name);
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let attributes: &[Attribute] = match item {
            TraitItem::Const(item) => &item.attrs,
            TraitItem::Fn(item) => &item.attrs,
            TraitItem::Type(item) => &item.attrs,
            TraitItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !field.attrs.iter().any(is_for_tests) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !local.attrs.iter().any(is_for_tests) {
            visit::visit_local(self, local);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|segment| segment.ident.unraw().to_string());
            self.module.paths.insert(segments.collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        if called.path.leading_colon.is_none() {
            self.call_macro(
                called.path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect(),
            );
        }
        self.scan(called.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta
            && !list.path.is_ident("cfg")
        {
            self.scan(list.tokens.clone());
        }
    }

    /// A visibility's path (`pub(in crate::x)`) is no use.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// Modules that the entries of a list declare (`mod file: A, B;`), each with the names that its entry has of it.
fn listed_modules(tokens: &TokenStream) -> Vec<(Ident, Vec<String>)> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let entries = tokens.split(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ';'));
    let ident = |token: &TokenTree| match token {
        TokenTree::Ident(name) => Some(name.clone()),
        _ => None,
    };
    let declared = entries.filter_map(|entry| {
        let at = entry.iter().position(|token| ident(token).is_some_and(|name| name == "mod"))?;
        let name = ident(entry.get(at + 1)?)?;
        Some((name, entry[at + 2..].iter().filter_map(ident).map(|name| name.unraw().to_string()).collect()))
    });
    declared.collect()
}

/// `mod name;`.
fn without_body(name: Ident) -> ItemMod {
    ItemMod {
        attrs: Vec::new(),
        vis: Visibility::Inherited,
        unsafety: None,
        mod_token: <Token![mod]>::default(),
        ident: name,
        content: None,
        semi: None,
    }
}

/// Every name that a `use` brings, with its path; no name for all of a module's.
fn leaves(tree: &UseTree) -> Vec<(Vec<String>, Option<String>)> {
    fn walk(tree: &UseTree, before: &[String], found: &mut Vec<(Vec<String>, Option<String>)>) {
        let with = |ident: &Ident| [before, &[ident.unraw().to_string()]].concat();
        match tree {
            UseTree::Path(path) => walk(&path.tree, &with(&path.ident), found),
            UseTree::Group(group) => group.items.iter().for_each(|tree| walk(tree, before, found)),
            UseTree::Glob(_) => found.push((before.to_vec(), None)),
            // `a::{self}` is `a`.
            UseTree::Name(name) if name.ident == "self" => {
                found.push((before.to_vec(), before.last().cloned()));
            }
            UseTree::Name(name) => found.push((with(&name.ident), Some(name.ident.unraw().to_string()))),
            UseTree::Rename(renamed) if renamed.ident == "self" => {
                found.push((before.to_vec(), Some(renamed.rename.unraw().to_string())));
            }
            UseTree::Rename(renamed) => {
                found.push((with(&renamed.ident), Some(renamed.rename.unraw().to_string())));
            }
        }
    }
    let mut found = Vec::new();
    walk(tree, &[], &mut found);
    found
}

/// The name after `::` at the start of `tokens`.
fn next_segment(tokens: &[TokenTree]) -> Option<&Ident> {
    match tokens {
        [TokenTree::Punct(first), TokenTree::Punct(second), TokenTree::Ident(name), ..]
            if first.as_char() == ':' && first.spacing() == Spacing::Joint && second.as_char() == ':' =>
        {
            Some(name)
        }
        _ => None,
    }
}

/// Whether the path from `first` to `last` belongs to a value (`.name`, `name: value`) or to a type (`>::name`), is a
/// lifetime, or another crate's (`::name`).
fn is_member(tokens: &[TokenTree], first: usize, last: usize) -> bool {
    let punct = |at: Option<usize>| match at.and_then(|at| tokens.get(at)) {
        Some(TokenTree::Punct(punct)) => Some(punct.as_char()),
        _ => None,
    };
    match (punct(first.checked_sub(2)), punct(first.checked_sub(1))) {
        // A range's end.
        (Some('.'), Some('.')) => false,
        (_, Some('.' | '\'')) | (Some(':'), Some(':')) => true,
        _ => punct(Some(last + 1)) == Some(':') && punct(Some(last + 2)) != Some(':'),
    }
}

/// The name that an item defines in its module.
fn defined(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::TraitAlias(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an attribute limits its item to tests.
fn is_for_tests(attribute: &Attribute) -> bool {
    let is_cfg = attribute.path().is_ident("cfg");
    attribute.path().is_ident("test")
        || is_cfg && attribute.parse_args::<Meta>().is_ok_and(|condition| needs_test(&condition))
}

fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let inner = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            let inner = inner.unwrap_or_default();
            (list.path.is_ident("all") && inner.iter().any(needs_test))
                || (list.path.is_ident("any") && !inner.is_empty() && inner.iter().all(needs_test))
        }
        Meta::NameValue(_) => false,
    }
}
