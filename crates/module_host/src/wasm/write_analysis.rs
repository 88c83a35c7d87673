//! Static analysis: finds out which state of an instance its code can change. If it can change only memory and numeric
//! globals, instances can be reset to their state after the start. For this, mutable globals get additional exports
//! under generated names. The analysis uses only the bytes of the module.
//!
//! An instance consists of functions, memories, tables, globals, and segments that can be dropped (core specification,
//! 4.2). Functions never change. Code that can change tables or segments is recognized by its instructions.

use wasmparser::{Operator, Parser, Payload, ValType};

/// The maximum number of mutable globals in a resettable module.
const GLOBALS_MAX: usize = 16;
const EXPORT_SECTION: u8 = 7;
const GLOBAL: u8 = 3;

/// A module with instances that can be reset.
pub(super) struct ResettableModule {
    /// The module with the added exports.
    pub(super) bytes: Vec<u8>,
    /// The export names of all mutable globals.
    pub(super) globals: Vec<String>,
}

/// Analyses a module; `None` if its instances cannot be reset, or if the module is invalid.
pub(super) fn resettable(bytes: &[u8]) -> Option<ResettableModule> {
    let mut mutable_globals = Vec::new();
    let mut output = b"\0asm\x01\0\0\0".to_vec();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.ok()?;
        match &payload {
            Payload::GlobalSection(globals) => {
                for (index, global) in (0..).zip(globals.clone()) {
                    let kind = global.ok()?.ty;
                    match kind.content_type {
                        // Constant globals need no reset.
                        _ if !kind.mutable => {}
                        ValType::I32 | ValType::I64 | ValType::F32 | ValType::F64 => {
                            mutable_globals.push(index);
                        }
                        // References point to tables of the instance or to host objects, and cannot be copied.
                        _ => return None,
                    }
                }
            }
            // The indices of globals would start after imported globals, but this server provides no globals to import.
            Payload::CodeSectionEntry(body) => {
                // All functions are searched, even those that are never called.
                for operator in body.get_operators_reader().ok()? {
                    // A single such instruction suffices, even if it is never executed.
                    if changes_tables(&operator.ok()?) {
                        return None;
                    }
                }
            }
            _ => {}
        }
        let Some((id, range)) = payload.as_section() else {
            continue;
        };
        // The parser reports a section before it has read its end, which may be missing in a truncated file.
        let content = bytes.get(range)?;
        match id {
            EXPORT_SECTION => section(&mut output, id, &exports(content, &mutable_globals)?),
            _ => section(&mut output, id, content),
        }
    }
    let globals: Vec<_> = mutable_globals.into_iter().map(name).collect();
    (globals.len() <= GLOBALS_MAX).then_some(ResettableModule {
        bytes: output,
        globals,
    })
}

/// Whether an instruction changes tables or segments.
fn changes_tables(operator: &Operator<'_>) -> bool {
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

/// The export section with the added globals.
fn exports(section: &[u8], globals: &[u32]) -> Option<Vec<u8>> {
    // The section starts with the number of exports, in LEB128.
    let count_len = section.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let count = section[..count_len]
        .iter()
        .rev()
        .fold(0, |count, byte| count << 7 | u64::from(byte & 0x7f));
    let mut output = Vec::new();
    number(&mut output, count.checked_add(globals.len() as u64)?);
    output.extend_from_slice(&section[count_len..]);
    for global in globals {
        let name = name(*global);
        number(&mut output, name.len() as u64);
        output.extend_from_slice(name.as_bytes());
        output.push(GLOBAL);
        number(&mut output, u64::from(*global));
    }
    Some(output)
}

fn section(output: &mut Vec<u8>, id: u8, content: &[u8]) {
    output.push(id);
    number(output, content.len() as u64);
    output.extend_from_slice(content);
}

/// Appends a number in LEB128.
fn number(output: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            output.push(low);
            return;
        }
        output.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wat_module(text: &str) -> Vec<u8> {
        wat::parse_str(format!("(module {text})")).expect("the text is a module")
    }

    #[test]
    fn mutable_globals_get_exports() {
        let bytes = wat_module(
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
    fn truncated_or_corrupted_module_causes_no_panic() {
        let whole = wat_module(
            r#"(global (mut i32) (i32.const 1)) (table 1 funcref) (memory (export "memory") 1)
            (elem (i32.const 0) $work) (data (i32.const 0) "text")
            (func $work (export "work") (param i32) (loop (br_if 0 (local.get 0))))"#,
        );
        assert!(resettable(&whole).is_some());
        // If truncated between two sections, the module is still valid. The test only checks that no input causes a
        // panic or an endless loop.
        for len in 0..whole.len() {
            let _ = resettable(&whole[..len]);
        }
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut corrupted = whole.clone();
                corrupted[at] = byte;
                let _ = resettable(&corrupted);
                let _ = resettable(&corrupted[..at + 1]);
            }
        }
    }

    #[test]
    fn code_that_changes_tables_or_segments_is_not_resettable() {
        for code in [
            "(table.set $t (i32.const 0) (ref.null func))",
            "(drop (table.grow $t (ref.null func) (i32.const 1)))",
            "(table.fill $t (i32.const 0) (ref.null func) (i32.const 1))",
            "(table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 1))",
            "(table.init $t $e (i32.const 0) (i32.const 0) (i32.const 0))",
            "(elem.drop $e)",
            "(data.drop $d)",
        ] {
            let bytes = wat_module(&format!(
                r#"(table $t 2 funcref) (memory 1) (elem $e func) (data $d "text")
                (func $work (export "work") {code})"#
            ));
            assert!(resettable(&bytes).is_none(), "{code}");
        }
        let global = wat_module(r#"(global (mut funcref) (ref.null func)) (func (export "work"))"#);
        assert!(resettable(&global).is_none());
        assert!(resettable(b"no module").is_none());
    }
}
