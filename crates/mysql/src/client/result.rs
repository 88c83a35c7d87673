//! Processes the replies to preparing and executing statements.

use super::{CR_PARAMS_NOT_BOUND, ClientState, MySqlClient};
use crate::column::ColumnInfo;
use crate::error::MySqlError;
use crate::event::{MySqlEvent, ServerFailure};
use crate::packet_reader::{PacketReader, SHORT};
use crate::{request, row};

const OK: u8 = 0x00;
const LOCAL_INFILE: u8 = 0xfb;
const END: u8 = 0xfe;
const ERR: u8 = 0xff;

/// A status flag: another result follows.
const MORE_RESULTS: u16 = 1 << 3;

impl MySqlClient {
    pub(super) fn prepared(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        let mut from = PacketReader(payload);
        match from.u8()? {
            OK => {}
            ERR => return self.failed(payload, events),
            _ => {
                return Err(MySqlError::Protocol(
                    "no prepared statement in the response",
                ));
            }
        }
        let id = from.u32()?;
        let columns = usize::from(from.u16()?);
        let parameters = usize::from(from.u16()?);
        // The count is checked before the columns arrive, so that a hostile count causes no allocations.
        if columns > self.limits.column_count_max {
            return Err(MySqlError::TooManyColumns);
        }
        let text = core::mem::take(&mut self.pending_execute.0);
        let (at, evicted) = self.statements.add(text, id, parameters);
        self.current = at;
        if let Some(old) = evicted {
            // COM_STMT_CLOSE has no reply, so it can precede the next command.
            request::close(&mut self.out, old);
        }
        // Empty lists consist of no packets, not even an EOF packet.
        match self.list_len(parameters) {
            0 => self.columns_begin(columns, true, events),
            left => {
                self.state = ClientState::Parameters {
                    remaining: left,
                    columns,
                }
            }
        }
        Ok(())
    }

    /// The number of packets in a list of `count` definitions: without CLIENT_DEPRECATE_EOF, an additional packet ends
    /// the list.
    fn list_len(&self, count: usize) -> usize {
        match count {
            0 => 0,
            count => count + usize::from(!self.capabilities.deprecates_eof),
        }
    }

    /// Handles the definition of a parameter. Its content is ignored, since even the server does not know the type.
    pub(super) fn parameter(
        &mut self,
        payload: &[u8],
        remaining: usize,
        columns: usize,
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        match (payload.first(), remaining) {
            (None, _) => return Err(SHORT),
            (Some(&ERR), _) => return self.failed(payload, events),
            (_, 0 | 1) => self.columns_begin(columns, true, events),
            (_, remaining) => {
                self.state = ClientState::Parameters {
                    remaining: remaining - 1,
                    columns,
                };
            }
        }
        Ok(())
    }

    /// Starts a list of column definitions; an empty list ends immediately.
    fn columns_begin(
        &mut self,
        count: usize,
        is_prepared: bool,
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) {
        // The column definitions of an earlier result are overwritten, to reuse their allocations.
        if let Some(statement) = self.statements.at(self.current) {
            statement.columns.truncate(count);
        }
        match count {
            0 => self.columns_end(is_prepared, events),
            count => {
                self.state = ClientState::Columns {
                    at: 0,
                    count,
                    is_prepared,
                };
            }
        }
    }

    pub(super) fn column(
        &mut self,
        payload: &[u8],
        at: usize,
        count: usize,
        is_prepared: bool,
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        // A server can still fail after it has announced the columns.
        if payload.first() == Some(&ERR) {
            return self.failed(payload, events);
        }
        if at < count
            && let Some(statement) = self.statements.at(self.current)
        {
            if statement.columns.len() <= at {
                statement.columns.push(ColumnInfo::empty());
            }
            statement.columns[at].read(payload)?;
        } else if payload.first() != Some(&END) {
            // Without CLIENT_DEPRECATE_EOF, an EOF packet must follow the last column.
            return Err(MySqlError::Protocol("an unterminated list of columns"));
        }
        if at + 1 < self.list_len(count) {
            self.state = ClientState::Columns {
                at: at + 1,
                count,
                is_prepared,
            };
        } else {
            self.columns_end(is_prepared, events);
        }
        Ok(())
    }

    fn columns_end(&mut self, is_prepared: bool, events: &mut impl FnMut(MySqlEvent<'_>)) {
        let Some(statement) = self.statements.at(self.current) else {
            return;
        };
        if !is_prepared {
            events(MySqlEvent::Columns(&statement.columns));
            self.state = ClientState::Rows;
            return;
        }
        // The statement has been prepared: if the number of values is right, the stored execute packet is sent.
        let (_, packet, count) = &mut self.pending_execute;
        if *count != statement.value_count {
            events(MySqlEvent::Failed(ServerFailure {
                code: CR_PARAMS_NOT_BOUND,
                state: "HY000",
                message: "the number of values differs from the number of ? in the statement",
            }));
            self.state = ClientState::Idle;
            return;
        }
        request::set_id(packet, statement.id);
        self.out.extend_from_slice(packet);
        packet.clear();
        self.expect(ClientState::Result);
    }

    pub(super) fn command_done(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        match payload.first() {
            Some(&OK) => self.done(payload, events),
            Some(&ERR) => self.failed(payload, events),
            _ => Err(MySqlError::Protocol("a result in response to a command")),
        }
    }

    pub(super) fn result(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        match payload.first() {
            None => Err(SHORT),
            Some(&OK) => self.done(payload, events),
            Some(&ERR) => self.failed(payload, events),
            // If this request were answered, a server could read files of this machine.
            Some(&LOCAL_INFILE) => Err(MySqlError::Unsupported(
                "the database server requests a file: LOAD DATA LOCAL is not supported",
            )),
            Some(_) => {
                let mut from = PacketReader(payload);
                let count =
                    usize::try_from(from.lenenc()?).map_err(|_| MySqlError::TooManyColumns)?;
                if count > self.limits.column_count_max {
                    return Err(MySqlError::TooManyColumns);
                }
                // With MariaDB's metadata cache, a flag tells whether column definitions follow.
                let has_columns = !self.capabilities.caches_columns || from.u8()? != 0;
                if has_columns {
                    self.columns_begin(count, false, events);
                    return Ok(());
                }
                // With a wrong count, the values of all rows would be misinterpreted.
                let column_count = self
                    .statements
                    .at(self.current)
                    .map(|statement| statement.columns.len());
                if column_count != Some(count) {
                    return Err(MySqlError::Protocol("omitted columns that were never sent"));
                }
                self.columns_end(false, events);
                Ok(())
            }
        }
    }

    #[inline]
    pub(super) fn row(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        match payload.first() {
            Some(&OK) => {}
            Some(&END) => return self.rows_end(payload, events),
            Some(&ERR) => return self.failed(payload, events),
            _ => return Err(MySqlError::Protocol("a row begins with an unknown byte")),
        }
        // The limit is checked before the row is reported.
        if self.row_count == self.limits.row_count_max {
            return Err(MySqlError::TooManyRows);
        }
        self.row_count += 1;
        let Some(statement) = self.statements.at(self.current) else {
            return Err(MySqlError::Ended);
        };
        row::read(payload, &statement.columns, |value| {
            events(MySqlEvent::Value(value))
        })?;
        events(MySqlEvent::RowEnd);
        Ok(())
    }

    fn rows_end(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        // With CLIENT_DEPRECATE_EOF, the final packet is an OK packet with the header of an EOF packet.
        if self.capabilities.deprecates_eof {
            return self.done(payload, events);
        }
        let mut from = PacketReader(payload);
        from.bytes(3)?;
        let status = from.u16()?;
        self.end(status, 0, 0, events)
    }

    /// Handles an OK packet.
    fn done(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        let mut from = PacketReader(payload);
        from.u8()?;
        let affected = from.lenenc()?;
        let last_id = from.lenenc()?;
        let status = from.u16()?;
        self.end(status, affected, last_id, events)
    }

    fn end(
        &mut self,
        status: u16,
        affected: u64,
        last_id: u64,
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        if status & MORE_RESULTS != 0 {
            // For a procedure, the result sets are followed by an OK packet of the procedure.
            self.state = ClientState::Result;
            return Ok(());
        }
        self.state = ClientState::Idle;
        events(MySqlEvent::Done { affected, last_id });
        Ok(())
    }
}
