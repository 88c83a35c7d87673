//! What of an instance can change while it works, found by reading its code: if that is only memory
//! and numbers in globals, it can be put back to how it was at its start. Globals that are not
//! exported are exported here for that, under names of ours. Knows nothing of instances.
//!
//! An instance is functions, memories, tables, globals, and segments that can be dropped (core
//! specification, 4.2). Functions never change; code that could change tables or segments is
//! found by its instructions.

use wasmparser::{Operator, Parser, Payload, ValType};

/// Globals of a module.
const GLOBALS_MAX: usize = 16;
const EXPORT_SECTION: u8 = 7;
const GLOBAL: u8 = 3;

/// A module whose instances can be put back.
pub(super) struct Resettable {
    /// The module with more exports.
    pub(super) bytes: Vec<u8>,
    /// Names of all globals that can change.
    pub(super) globals: Vec<String>,
}

/// Reads a module; `None` if its instances cannot be put back, or it is none.
pub(super) fn resettable(bytes: &[u8]) -> Option<Resettable> {
    let mut changing = Vec::new();
    let mut made = b"\0asm\x01\0\0\0".to_vec();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.ok()?;
        match &payload {
            Payload::GlobalSection(globals) => {
                for (index, global) in (0..).zip(globals.clone()) {
                    let kind = global.ok()?.ty;
                    match kind.content_type {
                        _ if !kind.mutable => {}
                        ValType::I32 | ValType::I64 | ValType::F32 | ValType::F64 => {
                            changing.push(index);
                        }
                        _ => return None,
                    }
                }
            }
            // Indices of globals begin with those that are imported; there are none to import here.
            Payload::CodeSectionEntry(body) => {
                for operator in body.get_operators_reader().ok()? {
                    if changes_more(&operator.ok()?) {
                        return None;
                    }
                }
            }
            _ => {}
        }
        let Some((id, range)) = payload.as_section() else {
            continue;
        };
        // The parser tells of a section before it has seen the end of it, and the file may have none.
        let content = bytes.get(range)?;
        match id {
            EXPORT_SECTION => section(&mut made, id, &exports(content, &changing)?),
            _ => section(&mut made, id, content),
        }
    }
    let globals: Vec<_> = changing.into_iter().map(name).collect();
    (globals.len() <= GLOBALS_MAX).then_some(Resettable {
        bytes: made,
        globals,
    })
}

/// Whether an instruction changes tables or segments.
fn changes_more(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::TableSet { .. }
            | Operator::TableGrow { .. }
            | Operator::TableFill { .. }
            | Operator::TableCopy { .. }
            | Operator::TableInit { .. }
            | Operator::ElemDrop { .. }
            | Operator::DataDrop { .. }
    )
}

fn name(global: u32) -> String {
    format!("lowroad:global:{global}")
}

/// An export section with the globals added.
fn exports(section: &[u8], globals: &[u32]) -> Option<Vec<u8>> {
    let count_len = section.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let count = section[..count_len]
        .iter()
        .rev()
        .fold(0, |count, byte| count << 7 | u64::from(byte & 0x7f));
    let mut made = Vec::new();
    number(&mut made, count.checked_add(globals.len() as u64)?);
    made.extend_from_slice(&section[count_len..]);
    for global in globals {
        let name = name(*global);
        number(&mut made, name.len() as u64);
        made.extend_from_slice(name.as_bytes());
        made.push(GLOBAL);
        number(&mut made, u64::from(*global));
    }
    Some(made)
}

fn section(made: &mut Vec<u8>, id: u8, content: &[u8]) {
    made.push(id);
    number(made, content.len() as u64);
    made.extend_from_slice(content);
}

/// Appends a number in LEB128.
fn number(made: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            made.push(low);
            return;
        }
        made.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<u8> {
        wat::parse_str(format!("(module {text})")).expect("the text is a module")
    }

    #[test]
    fn globals_that_change_are_exported() {
        let bytes = parsed(
            r#"(global (mut i32) (i32.const 1)) (global i64 (i64.const 2))
            (global $named (export "named") (mut f64) (f64.const 3))
            (memory (export "memory") 1) (data (i32.const 0) "text")
            (func (export "work") (global.set $named (f64.const 4)))"#,
        );
        let found = resettable(&bytes).expect("it can be put back");
        assert_eq!(found.globals, ["lowroad:global:0", "lowroad:global:2"]);
        let mut names = Vec::new();
        for payload in Parser::new(0).parse_all(&found.bytes) {
            if let Payload::ExportSection(exports) = payload.expect("it is whole") {
                names = exports
                    .into_iter()
                    .map(|export| export.expect("whole").name)
                    .collect();
            }
        }
        let expected = [
            "named",
            "memory",
            "work",
            "lowroad:global:0",
            "lowroad:global:2",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_file_that_is_cut_or_spoilt_is_none_that_can_be_put_back() {
        let whole = parsed(
            r#"(global (mut i32) (i32.const 1)) (table 1 funcref) (memory (export "memory") 1)
            (elem (i32.const 0) $work) (data (i32.const 0) "text")
            (func $work (export "work") (param i32) (loop (br_if 0 (local.get 0))))"#,
        );
        assert!(resettable(&whole).is_some());
        // Where it ends between two sections it is a module still. There is nothing to expect but an end.
        for len in 0..whole.len() {
            let _ = resettable(&whole[..len]);
        }
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut spoilt = whole.clone();
                spoilt[at] = byte;
                let _ = resettable(&spoilt);
                let _ = resettable(&spoilt[..at + 1]);
            }
        }
    }

    #[test]
    fn code_that_changes_more_is_found() {
        for code in [
            "(table.set $t (i32.const 0) (ref.null func))",
            "(drop (table.grow $t (ref.null func) (i32.const 1)))",
            "(table.fill $t (i32.const 0) (ref.null func) (i32.const 1))",
            "(table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 1))",
            "(table.init $t $e (i32.const 0) (i32.const 0) (i32.const 0))",
            "(elem.drop $e)",
            "(data.drop $d)",
        ] {
            let bytes = parsed(&format!(
                r#"(table $t 2 funcref) (memory 1) (elem $e func) (data $d "text")
                (func $work (export "work") {code})"#
            ));
            assert!(resettable(&bytes).is_none(), "{code}");
        }
        let global = parsed(r#"(global (mut funcref) (ref.null func)) (func (export "work"))"#);
        assert!(resettable(&global).is_none());
        assert!(resettable(b"no module").is_none());
    }
}
