use super::*;

#[derive(Default)]
struct Heard {
    lines: Vec<String>,
}

impl Sink for Heard {
    fn object(&mut self, source: &str, value: Value) {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("?").to_owned();
        self.lines.push(format!("{source} {} {}", text("/kind"), text("/metadata/name")));
    }

    fn trouble(&mut self, trouble: Trouble) {
        let message: String = trouble.message.chars().take(30).collect();
        self.lines.push(format!("{} TROUBLE {}: {message}", trouble.source, trouble.what));
    }
}

fn heard(text: &str) -> Vec<String> {
    let mut heard = Heard::default();
    read_stream("f", Box::new(text.as_bytes()), &mut heard).unwrap();
    heard.lines
}

#[test]
fn documents_are_found_with_their_lines() {
    let text = "# a comment\n---\nkind: Pod\nmetadata: {name: a}\n---\n# nothing here\n--- # more\nkind: Pod\nmetadata:\n  name: b\n...\n--- {kind: Pod, metadata: {name: c}}\n";
    assert_eq!(heard(text), ["f:3 Pod a", "f:8 Pod b", "f:12 Pod c"]);
    assert_eq!(heard(""), [""; 0]);
    assert_eq!(heard("\n\n"), [""; 0]);
}

#[test]
fn a_list_of_kubectl_is_taken_apart() {
    let text = "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: a\n  data: |\n    - apiVersion: not an item\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: b\nkind: List\nmetadata:\n  resourceVersion: \"\"\n---\nkind: Pod\nmetadata: {name: c}\n";
    assert_eq!(heard(text), ["f:3 Pod a", "f:9 Node b", "f:17 Pod c"]);
}

#[test]
fn lists_in_other_notations_are_taken_apart_too() {
    let indented = "kind: List\nitems:\n\n  # first\n  - kind: Pod\n    metadata: {name: a}\n\n  - kind: Pod\n    metadata: {name: b}\n";
    assert_eq!(heard(indented), ["f:5 Pod a", "f:8 Pod b"]);
    let inline = "{kind: List, items: [{kind: Pod, metadata: {name: a}}]}";
    assert_eq!(heard(inline), ["f:1 Pod a"]);
    let typed = "kind: PodList\napiVersion: v1\nitems:\n- metadata: {name: a}\n";
    assert_eq!(heard(typed), ["f:4 Pod a"]);
    assert_eq!(heard("kind: PodList\nitems: []\n"), [""; 0]);
    let other = "kind: Thing\nmetadata: {name: t}\nitems:\n- just: data\n";
    assert_eq!(heard(other), ["f:1 Thing t"]);
}

#[test]
fn a_broken_document_does_not_take_the_others_with_it() {
    let text =
        "kind: Pod\nmetadata: {name: a}\n---\nkind: Pod\n  bad: indent\n- x\n---\nkind: Pod\nmetadata: {name: c}\n";
    assert_eq!(heard(text), ["f:1 Pod a", "f:5 TROUBLE document 2: it is not YAML: mapping values", "f:8 Pod c"]);
    let list = "items:\n- kind: Pod\n  metadata: {name: a}\n- kind: Pod\n  metadata: {name: [}\n- kind: Pod\n  metadata: {name: c}\nkind: List\n";
    assert_eq!(
        heard(list),
        ["f:2 Pod a", "f:5 TROUBLE item 2 of document 1: it is not YAML: did not find e", "f:6 Pod c"]
    );
}

#[test]
fn json_is_read_item_by_item() {
    let list = r#"{"apiVersion": "v1", "items": [{"kind": "Pod", "metadata": {"name": "a"}}, {"kind": "Pod", "metadata": {"name": "b"}}], "kind": "List"}"#;
    assert_eq!(heard(list), ["f, item 1 Pod a", "f, item 2 Pod b"]);
    let raw = r#"{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}]}"#;
    assert_eq!(heard(raw), ["f, item 1 Pod a"]);
    let raw_late = r#"{"items": [{"metadata": {"name": "a"}}], "kind": "PodList", "apiVersion": "v1"}"#;
    assert_eq!(heard(raw_late), ["f, item 1 Pod a"]);
    let several =
        "{\"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}}\n{\"kind\": \"Pod\", \"metadata\": {\"name\": \"b\"}}\n";
    assert_eq!(heard(several), ["f, document 1 Pod a", "f, document 2 Pod b"]);
    let array = r#"[{"kind": "Pod", "metadata": {"name": "a"}}]"#;
    assert_eq!(heard(array), ["f, item 1 Pod a"]);
    assert_eq!(heard(r#"{"kind": "List", "items": null}"#), [""; 0]);
}

#[test]
fn what_came_before_the_cut_is_kept() {
    let cut = "{\"items\": [{\"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}},\n{\"kind\": \"Po";
    assert_eq!(heard(cut), ["f, item 1 Pod a", "f:2 TROUBLE document 1, after item 1: it ends in the middle: EOF whi"]);
    let bad = "{\"kind\": \"Pod\", \"metadata\": nope}";
    assert_eq!(heard(bad), ["f:1 TROUBLE document 1: expected ident at line 1 colum"]);
}
