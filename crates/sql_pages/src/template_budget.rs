//! Inserts budget checks into the text of a template, since the engine has no hooks for operators and loops. `a ~ b`
//! becomes `(a)|LEFT ~ (b)|CONCAT`: both filters return their input, and CONCAT first checks that the budget suffices
//! for the result. A slice, `a[1:]`, becomes `((a[1:])|MADE)`, which checks that the budget is not exhausted. Each
//! iteration of a loop, each call of a macro and the start of a template is also a check, unless it always writes a
//! value: writing includes a check. The filters are in `budget_guards`. Line numbers do not change.
//!
//! The engine's own parser finds the operators. Templates with syntax errors are left unchanged: the compiler reports
//! them in more detail.

use minijinja::Error;
use minijinja::machinery::ast::{BinOpKind, Call, CallArg, Expr, Stmt};
use minijinja::machinery::{Span, Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;

/// The prefix of inserted filters and functions; it is reserved, so templates must not contain it.
pub const PREFIX: &str = "_lowroad_";

/// Returns the text of a template with inserted checks.
pub fn instrument(name: &str, source: &str) -> String {
    let tokens: Result<Vec<_>, Error> = tokenize(source, false, SyntaxConfig::default()).collect();
    // The compiler reports a syntax error with its location, and the page never runs.
    let (Ok(tokens), Ok(template)) = (tokens, parse(source, name, SyntaxConfig::default())) else {
        return source.to_string();
    };
    let mut walk = TemplateWalk {
        source,
        tokens: &tokens,
        insertions: vec![(0, format!("{{{{ {PREFIX}step() }}}}"))],
        silent: Vec::new(),
    };
    walk.statement(&template);
    walk.bodies();
    walk.finish()
}

/// Whether a text contains the reserved prefix.
pub fn uses_reserved_names(source: &str) -> bool {
    source.contains(PREFIX)
}

struct TemplateWalk<'w, 's> {
    source: &'s str,
    tokens: &'w [(Token<'s>, Span)],
    /// Byte positions and the texts to insert there. Insertions for inner expressions precede those for outer
    /// expressions.
    insertions: Vec<(usize, String)>,
    /// For each loop and macro, in the order of the text: whether its body may end without a check.
    silent: Vec<bool>,
}

impl TemplateWalk<'_, '_> {
    fn finish(mut self) -> String {
        // The sort is stable: insertions at the same position keep their order, so that parentheses nest.
        self.insertions.sort_by_key(|(position, _)| *position);
        let mut out = String::with_capacity(self.source.len() * 2);
        let mut copied = 0;
        for (position, text) in &self.insertions {
            out.push_str(&self.source[copied..*position]);
            out.push_str(text);
            copied = *position;
        }
        out.push_str(&self.source[copied..]);
        out
    }

    /// Inserts a check at the start of each loop or macro body that may end without a check.
    fn bodies(&mut self) {
        let mut silent = std::mem::take(&mut self.silent).into_iter();
        let mut in_block = false;
        for pair in self.tokens.windows(2) {
            let ((first, _), (second, span)) = (&pair[0], &pair[1]);
            if matches!(first, Token::BlockStart) {
                in_block = matches!(second, Token::Ident("for" | "macro"));
            }
            // Loops and macros are in the same order in the tokens and in the syntax tree.
            if in_block && matches!(second, Token::BlockEnd) {
                in_block = false;
                if silent.next() == Some(false) {
                    continue;
                }
                let end = &self.source[span.start_offset as usize..span.end_offset as usize];
                // The whitespace control of the block is copied to the inserted call.
                let trim = if end.starts_with('-') { "-" } else { "" };
                let text = format!("{{{{ {PREFIX}step() {trim}}}}}");
                self.insertions.push((span.end_offset as usize, text));
            }
        }
    }

    fn statements(&mut self, all: &[Stmt<'_>]) {
        all.iter().for_each(|child| self.statement(child));
    }

    fn statement(&mut self, statement: &Stmt<'_>) {
        match statement {
            Stmt::Template(it) => self.statements(&it.children),
            // Writing checks the length of the whole value, so its operators need no check.
            Stmt::EmitExpr(it) if is_short_sum(&it.expr) => {}
            Stmt::EmitExpr(it) => self.expression(&it.expr),
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
            Stmt::ForLoop(it) => {
                // The loop is recorded here to keep the order of the text, which `bodies` follows.
                self.silent.push(is_silent(&it.body));
                self.expression(&it.iter);
                it.filter_expr.iter().for_each(|it| self.expression(it));
                self.statements(&it.body);
                self.statements(&it.else_body);
            }
            Stmt::IfCond(it) => {
                self.expression(&it.expr);
                self.statements(&it.true_body);
                self.statements(&it.false_body);
            }
            Stmt::WithBlock(it) => {
                it.assignments
                    .iter()
                    .for_each(|(_, it)| self.expression(it));
                self.statements(&it.body);
            }
            Stmt::Set(it) => {
                self.expression(&it.target);
                self.expression(&it.expr);
            }
            Stmt::SetBlock(it) => {
                it.filter.iter().for_each(|it| self.expression(it));
                self.statements(&it.body);
            }
            Stmt::AutoEscape(it) => {
                self.expression(&it.enabled);
                self.statements(&it.body);
            }
            Stmt::FilterBlock(it) => {
                self.expression(&it.filter);
                self.statements(&it.body);
            }
            Stmt::Block(it) => self.statements(&it.body),
            Stmt::Import(it) => self.expression(&it.expr),
            Stmt::FromImport(it) => self.expression(&it.expr),
            Stmt::Extends(it) => self.expression(&it.name),
            Stmt::Include(it) => self.expression(&it.name),
            Stmt::Macro(it) => {
                self.silent.push(is_silent(&it.body));
                self.expressions(&it.defaults);
                self.statements(&it.body);
            }
            Stmt::CallBlock(it) => {
                self.call(&it.call);
                self.expressions(&it.macro_decl.defaults);
                self.statements(&it.macro_decl.body);
            }
            Stmt::Do(it) => self.call(&it.call),
        }
    }

    fn expressions(&mut self, all: &[Expr<'_>]) {
        all.iter().for_each(|child| self.expression(child));
    }

    fn expression(&mut self, expression: &Expr<'_>) {
        match expression {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(it) => {
                // Inner expressions come first, so that their insertions precede the outer insertions at the same
                // position.
                self.expression(&it.expr);
                let bounds = [&it.start, &it.stop, &it.step];
                bounds
                    .into_iter()
                    .flatten()
                    .for_each(|it| self.expression(it));
                let end = it.span().end_offset as usize;
                self.insertions.push((start(expression), "((".into()));
                self.insertions.push((end, format!(")|{PREFIX}made)")));
            }
            Expr::UnaryOp(it) => self.expression(&it.expr),
            Expr::BinOp(it) => {
                self.expression(&it.left);
                self.expression(&it.right);
                self.operator(it.op, it.span());
            }
            Expr::Compare(it) => {
                self.expression(&it.expr);
                it.ops.iter().for_each(|it| self.expression(&it.expr));
            }
            Expr::IfExpr(it) => {
                self.expression(&it.test_expr);
                self.expression(&it.true_expr);
                it.false_expr.iter().for_each(|it| self.expression(it));
            }
            Expr::Filter(it) => {
                it.expr.iter().for_each(|it| self.expression(it));
                self.arguments(&it.args);
            }
            Expr::Test(it) => {
                self.expression(&it.expr);
                self.arguments(&it.args);
            }
            Expr::GetAttr(it) => self.expression(&it.expr),
            Expr::GetItem(it) => {
                self.expression(&it.expr);
                self.expression(&it.subscript_expr);
            }
            Expr::Call(it) => self.call(it),
            Expr::List(it) => self.expressions(&it.items),
            Expr::Tuple(it) => self.expressions(&it.items),
            Expr::Map(it) => {
                self.expressions(&it.keys);
                self.expressions(&it.values);
            }
        }
    }

    fn call(&mut self, call: &Call<'_>) {
        self.expression(&call.expr);
        self.arguments(&call.args);
    }

    fn arguments(&mut self, all: &[CallArg<'_>]) {
        for argument in all {
            match argument {
                CallArg::Pos(it)
                | CallArg::Kwarg(_, it)
                | CallArg::PosSplat(it)
                | CallArg::KwargSplat(it) => self.expression(it),
            }
        }
    }

    /// Inserts checks at the operator of the expression at `span`. Operators of the same kind are left-associative, so
    /// the operator is the last of its kind outside brackets.
    fn operator(&mut self, kind: BinOpKind, span: Span) {
        let is_operator: fn(&Token<'_>) -> bool = match kind {
            BinOpKind::Add => |token| matches!(token, Token::Plus),
            BinOpKind::Concat => |token| matches!(token, Token::Tilde),
            BinOpKind::Mul => |token| matches!(token, Token::Mul),
            _ => return,
        };
        let name = match kind {
            BinOpKind::Add => "add",
            BinOpKind::Concat => "concat",
            _ => "mul",
        };
        // Tokens after the expression are excluded.
        let ends_within =
            |(_, token_span): &(Token<'_>, Span)| token_span.end_offset <= span.end_offset;
        let inner = &self.tokens[..self.tokens.partition_point(ends_within)];
        // The search runs from the right, since the operator is the last one outside brackets.
        let mut depth = 0;
        let mut found = None;
        for (token, token_span) in inner.iter().rev() {
            match token {
                Token::ParenClose | Token::BracketClose | Token::BraceClose => depth += 1,
                Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth -= 1,
                token if depth == 0 && is_operator(token) => found = Some(*token_span),
                _ => {}
            }
            if found.is_some() || token_span.start_offset <= span.start_offset {
                break;
            }
        }
        let Some(operator_span) = found else { return };
        let (start, end) = (span.start_offset as usize, span.end_offset as usize);
        self.insertions.push((start, "(".into()));
        let left = format!(")|{PREFIX}left ");
        self.insertions
            .push((operator_span.start_offset as usize, left));
        self.insertions
            .push((operator_span.end_offset as usize, "(".into()));
        self.insertions.push((end, format!(")|{PREFIX}{name}")));
    }
}

/// The maximum number of operators in a written expression without separate checks.
const SHORT_SUM_MAX: usize = 4;

/// Whether an expression concatenates constants and at most one value, such as `"/item?id=" ~ id`. Writing it is a
/// check, and before that it takes no more memory than a few copies of existing values.
fn is_short_sum(expression: &Expr<'_>) -> bool {
    let (mut operators, mut values, mut rest) = (0, 0, vec![expression]);
    while let Some(current) = rest.pop() {
        match current {
            Expr::Const(_) => {}
            Expr::Var(_) => values += 1,
            Expr::GetAttr(it) if matches!(it.expr, Expr::Var(_)) => values += 1,
            Expr::BinOp(it) if matches!(it.op, BinOpKind::Concat) => {
                operators += 1;
                rest.extend([&it.left, &it.right]);
            }
            _ => return false,
        }
    }
    // With a second value, the length could double in each use.
    operators <= SHORT_SUM_MAX && values <= 1
}

/// Whether a body may end without having written a value.
fn is_silent(body: &[Stmt<'_>]) -> bool {
    let always_runs = |statement: &&Stmt<'_>| {
        matches!(
            statement,
            Stmt::EmitRaw(_) | Stmt::EmitExpr(_) | Stmt::Set(_)
        )
    };
    // Only statements that always run count; a condition may be false.
    let mut prefix = body.iter().take_while(always_runs);
    !prefix.any(|statement| matches!(statement, Stmt::EmitExpr(_)))
}

/// The start of an expression's first operand, without brackets around it. In the engine, the spans of postfix
/// expressions start after the operand.
fn start(expression: &Expr<'_>) -> usize {
    match expression {
        Expr::Slice(it) => start(&it.expr),
        Expr::GetAttr(it) => start(&it.expr),
        Expr::GetItem(it) => start(&it.expr),
        Expr::Call(it) => start(&it.expr),
        Expr::Test(it) => start(&it.expr),
        Expr::BinOp(it) => start(&it.left),
        Expr::Compare(it) => start(&it.expr),
        Expr::IfExpr(it) => start(&it.true_expr),
        Expr::Filter(it) => match &it.expr {
            Some(expr) => start(expr),
            None => it.span().start_offset as usize,
        },
        _ => expression.span().start_offset as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instrumented(source: &str) -> String {
        let text = instrument("test", source);
        let step = "{{ _lowroad_step() }}";
        let text = text.strip_prefix(step).expect("it begins with a question");
        let filters = text.replace("|_lowroad_", "|");
        filters.replace("_lowroad_step()", "step")
    }

    #[test]
    fn checks_are_inserted_at_operators() {
        let pairs = [
            ("{{ a ~ b }}", "{{ (a )|left ~( b)|concat }}"),
            ("{{ 'a' ~ b.c ~ 'd' }}", "{{ 'a' ~ b.c ~ 'd' }}"),
            ("{{ ['a' ~ b] }}", "{{ [('a' )|left ~( b)|concat] }}"),
            ("{{ a - b / 2 }}", "{{ a - b / 2 }}"),
            (
                "{{ (a+b)*c.d[1] }}",
                "{{ (((a)|left +(b)|add))|left *(c.d[1])|mul }}",
            ),
            (
                "{{ a~b~c }}",
                "{{ ((a)|left ~(b)|concat)|left ~(c)|concat }}",
            ),
            ("{{ f(*x) ** 2 }}", "{{ f(*x) ** 2 }}"),
            ("{{ a.b[1:] }}", "{{ ((a.b[1:])|made) }}"),
            ("{{ -(a|f)()[:1][0] }}", "{{ -(((a|f)()[:1])|made)[0] }}"),
        ];
        for (source, text) in pairs {
            let text = text.replace(
                "(((a)|left ~(b)|concat)|left ~",
                "((a)|left ~(b)|concat)|left ~",
            );
            assert_eq!(instrumented(source), text, "{source}");
        }
    }

    #[test]
    fn checks_are_inserted_in_loops_and_macros() {
        assert_eq!(
            instrumented("{% for a in b -%} x{% endfor %}{% macro m() %}y{% endmacro %}"),
            "{% for a in b -%}{{ step -}} x{% endfor %}{% macro m() %}{{ step }}y{% endmacro %}"
        );
        assert_eq!(instrument("test", "{% for %}"), "{% for %}");
        // Writing a value includes a check.
        let outer = "{% for a in b %}{% if a %}{{ a }}{% endif %}";
        let inner = "{% for c in a %}x{% set d = c %}{{ d }}{% endfor %}{% endfor %}";
        let with_check = outer.replace("b %}", "b %}{{ step }}");
        assert_eq!(
            instrumented(&[outer, inner].concat()),
            [with_check.as_str(), inner].concat()
        );
    }
}
