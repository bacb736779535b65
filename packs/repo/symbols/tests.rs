use std::fs;
use std::path::Path;

use super::super::languages;
use super::*;

fn parse_as(file: &str, text: &str) -> Symbols {
    parse(
        text.as_bytes(),
        languages::of(Path::new(file)).unwrap().ready().unwrap(),
        &|| false,
    )
    .unwrap()
}

/// `kind name @line` or `kind parent.name @line`, in the order of the text.
fn defined(file: &str, text: &str) -> Vec<String> {
    parse_as(file, text)
        .definitions
        .iter()
        .map(|definition| {
            let parent = definition
                .parent
                .as_ref()
                .map(|parent| format!("{parent}."))
                .unwrap_or_default();
            format!(
                "{} {parent}{} @{}",
                definition.kind, definition.name, definition.line
            )
        })
        .collect()
}

fn uses(file: &str, text: &str) -> Vec<String> {
    parse_as(file, text)
        .references
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect()
}

#[test]
fn rust_is_understood() {
    let text = "pub struct Store<T> { inner: T }\nimpl<T: Clone> Store<T> {\n    pub fn open() -> Self { helper::<u8>(); todo!() }\n}\ntrait Read { fn read(&self); }\nenum E { A }\nconst LIMIT: usize = 3;\nmacro_rules! codes { () => {} }\nfn main() { codes!(open(LIMIT)); Store::open().read(); }\n";
    assert_eq!(
        defined("a.rs", text),
        [
            "struct Store @1",
            "method Store<T>.open @3",
            "trait Read @5",
            "method Read.read @5",
            "enum E @6",
            "constant LIMIT @7",
            "macro codes @8",
            "function main @9"
        ]
    );
    // `Store` twice: the impl and `Store::open`; `open` twice: in the macro call and after
    // `Store::`.
    let used = uses("a.rs", text);
    for expected in [
        "LIMIT 1", "Store 2", "codes 1", "helper 1", "open 2", "read 1",
    ] {
        assert!(
            used.contains(&expected.to_owned()),
            "{expected} in {used:?}"
        );
    }
}

#[test]
fn rust_leaves_out_what_implements_a_trait_and_tests() {
    let text = "struct S;\nimpl Clone for S { fn clone(&self) -> S { make() } }\nimpl Iterator for S { type Item = u8; fn next(&mut self) -> Option<u8> { None } }\n#[cfg(test)]\nmod tests {\n    const X: u8 = 1;\n    #[test]\n    fn works() { check(1) }\n}\n";
    assert_eq!(defined("a.rs", text), ["struct S @1"]);
    let used = uses("a.rs", text);
    for expected in ["check 1", "make 1", "Clone 1"] {
        assert!(
            used.contains(&expected.to_owned()),
            "{expected} in {used:?}"
        );
    }
    assert!(
        !used.iter().any(|name| name.starts_with("clone")),
        "{used:?}"
    );
}

#[test]
fn python_is_understood() {
    let text = "LIMIT = 3\nclass Store(Base):\n    @cached\n    def get(self, key: Key) -> int:\n        return helper(key).strip()\n\n    def put(self): pass\n\nasync def main(): Store().get(LIMIT)\n";
    assert_eq!(
        defined("a.py", text),
        [
            "constant LIMIT @1",
            "class Store @2",
            "method Store.get @4",
            "method Store.put @7",
            "function main @9"
        ]
    );
    let used = uses("a.py", text);
    for expected in [
        "Base 1", "Key 1", "LIMIT 1", "Store 1", "cached 1", "get 1", "helper 1", "strip 1",
    ] {
        assert!(
            used.contains(&expected.to_owned()),
            "{expected} in {used:?}"
        );
    }
}

#[test]
fn javascript_is_understood() {
    let text = "import { helper } from './x';\nexport const add = (a, b) => a + b;\nconst TABLE = {};\nclass Store extends Base { get(key) { return helper(key); } }\nexport default function main() { new Store().get(TABLE); }\n";
    assert_eq!(
        defined("a.js", text),
        [
            "function add @2",
            "constant TABLE @3",
            "class Store @4",
            "method Store.get @4",
            "function main @5"
        ]
    );
    let used = uses("a.js", text);
    for expected in ["Base 1", "Store 1", "TABLE 1", "get 1", "helper 2"] {
        assert!(
            used.contains(&expected.to_owned()),
            "{expected} in {used:?}"
        );
    }
}

#[test]
fn typescript_and_tsx_are_understood() {
    let text = "interface Shape { area(): number }\ntype Id = string;\nenum Color { Red }\nexport abstract class Store implements Shape { abstract put(id: Id): void; area() { return 1 } }\nexport function open(id: Id): Store { return load<Store>(id) }\n";
    let expected = [
        "interface Shape @1",
        "method Shape.area @1",
        "type Id @2",
        "enum Color @3",
        "class Store @4",
        "method Store.put @4",
        "method Store.area @4",
        "function open @5",
    ];
    assert_eq!(defined("a.ts", text), expected);
    assert_eq!(defined("a.tsx", text), expected);
    let used = uses("a.tsx", "const App = () => <Button onClick={save} />;\n");
    assert!(used.contains(&"Button 1".to_owned()), "{used:?}");
}

#[test]
fn go_is_understood() {
    let text = "package x\nconst Limit = 3\nvar Default, other = New(), 1\ntype Store struct { id Id }\ntype Reader interface { Read() int }\ntype Id string\nfunc New() *Store { return &Store{} }\nfunc (s *Store) Get(id Id) int { return pkg.Load(Limit) }\n";
    assert_eq!(
        defined("a.go", text),
        [
            "constant Limit @2",
            "variable Default @3",
            "variable other @3",
            "struct Store @4",
            "interface Reader @5",
            "method Read @5",
            "type Id @6",
            "function New @7",
            "method Get @8"
        ]
    );
    let used = uses("a.go", text);
    for expected in ["Id 2", "Limit 1", "Load 1", "New 1", "Store 3"] {
        assert!(
            used.contains(&expected.to_owned()),
            "{expected} in {used:?}"
        );
    }
}

#[test]
fn java_is_understood() {
    let text = "package x;\n@Service\npublic class Store extends Base implements Reader {\n  public Store() {}\n  int get(Key key) { return Loader.load(key); }\n}\ninterface Reader { int get(Key key); }\nenum Color { RED }\nrecord Point(int x) {}\n";
    assert_eq!(
        defined("A.java", text),
        [
            "class Store @3",
            "method Store.get @5",
            "interface Reader @7",
            "method Reader.get @7",
            "enum Color @8",
            "class Point @9"
        ]
    );
    let used = uses("A.java", text);
    for expected in [
        "Base 1",
        "Key 2",
        "Loader 1",
        "Reader 1",
        "Service 1",
        "load 1",
    ] {
        assert!(
            used.contains(&expected.to_owned()),
            "{expected} in {used:?}"
        );
    }
}

#[test]
fn c_is_understood() {
    let text = "#ifndef A_H\n#define A_H\n#define LIMIT 3\n#define MAX(a, b) ((a) > (b) ? (a) : (b))\nstruct store { int id; };\ntypedef struct store store_t;\nint store_get(store_t *s);\nstore_t *store_open(void) { return helper(LIMIT); }\n#endif\n";
    assert_eq!(
        defined("a.c", text),
        [
            "constant LIMIT @3",
            "macro MAX @4",
            "struct store @5",
            "type store_t @6",
            "function store_get @7",
            "function store_open @8"
        ]
    );
    let used = uses("a.c", text);
    for expected in ["LIMIT 1", "helper 1", "store 1", "store_t 2"] {
        assert!(
            used.contains(&expected.to_owned()),
            "{expected} in {used:?}"
        );
    }
}

#[test]
fn a_signature_is_one_line_without_the_body() {
    let signature = |file: &str, text: &str| parse_as(file, text).definitions[0].signature.clone();
    assert_eq!(
        signature(
            "a.rs",
            "pub async fn long(\n    first: u8, // the first\n    second: u8,\n) -> Result<()>\nwhere\n    u8: Copy,\n{\n    body()\n}\n"
        ),
        "pub async fn long( first: u8, second: u8, ) -> Result<()> where u8: Copy,"
    );
    assert_eq!(
        signature("a.rs", "pub const LIMIT: usize = 3;\n"),
        "pub const LIMIT: usize = 3"
    );
    assert_eq!(
        signature("a.py", "def get(a, b=1) -> int:\n    return 1\n"),
        "def get(a, b=1) -> int"
    );
    assert_eq!(
        signature("a.js", "export const add = (a, b) => {\n  return a;\n};\n"),
        "add = (a, b)"
    );
    assert_eq!(
        signature("a.go", "package x\ntype S struct {\n  a int\n}\n"),
        "S struct"
    );
    let long = signature("a.rs", &format!("fn f(a: {}) {{}}\n", "X".repeat(500)));
    assert_eq!(long.chars().count(), MAX_SIGNATURE_CHARS + 1);
    assert!(long.ends_with('…'));
}

#[test]
fn broken_code_gives_what_can_be_read() {
    let symbols = parse_as("a.rs", "fn good() {}\nfn bad( {{{ ???\n");
    assert_eq!(&*symbols.definitions[0].name, "good");
    // Far deeper than any stack: a parser that recurses dies here.
    let deep = format!("fn f() {{ {}1{} }}", "(".repeat(50_000), ")".repeat(50_000));
    parse_as("a.rs", &deep);
    parse_as("a.rs", "");
}

#[test]
fn files_that_are_no_text_are_skipped_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let grammar = languages::of(Path::new("a.rs")).unwrap();
    let read_bytes = |bytes: &[u8]| {
        let file = folder.path().join("a.rs");
        fs::write(&file, bytes).unwrap();
        read(File::open(&file), grammar, &|| false)
    };
    assert_eq!(
        read_bytes(&vec![b'\n'; MAX_FILE_BYTES as usize + 1]),
        Err(Skip::TooLarge)
    );
    assert_eq!(read_bytes(b"fn a() {}\0"), Err(Skip::NotText));
    assert_eq!(
        read_bytes(format!("fn a() {{ {} }}", "b(); ".repeat(500)).as_bytes()),
        Err(Skip::NotText)
    );
    assert_eq!(read_bytes(b""), Ok(Symbols::default()));
    assert_eq!(
        read(File::open(folder.path().join("gone.rs")), grammar, &|| {
            false
        }),
        Err(Skip::Unreadable)
    );
    assert_eq!(
        read(File::open(folder.path()), grammar, &|| false),
        Err(Skip::Unreadable)
    );
    // Latin-1: the names in ASCII are still found, the broken one is not.
    let latin = read_bytes(b"// caf\xe9\nfn good() {}\nfn caf\xe9() {}\n").unwrap();
    assert!(
        latin
            .definitions
            .iter()
            .any(|definition| &*definition.name == "good")
    );
}

#[test]
fn parsing_ends_when_nobody_waits() {
    let text = "fn f() { g(1, 2, 3) }\n".repeat(2000);
    let ready = languages::of(Path::new("a.rs")).unwrap().ready().unwrap();
    assert!(parse(text.as_bytes(), ready, &|| true).is_none());
}
