//! Requests, and those whose answer has not arrived: the first answer and those that repeat it. Which
//! segment is a request is for `ours`.

use super::{Responder, wait_for_listener};
use crate::answer::{again, choose, may_answer, write};
use crate::connection::{Connection, State, Table, UnderWay, WINDOW};
use crate::frame::{FIN, Segment};
use crate::held;
use crate::reason::Reason;
use crate::verdict::{Verdict, counted, replied};
use crate::world::{Socket, World};

/// How often an answer is sent for what costs less than its request.
const AGAIN_MAX: u8 = 7;

impl<T: Table> Responder<T> {
    /// The server above gets the connection, from this segment on.
    pub(super) fn up(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
        reason: Reason,
    ) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        connection.state = State::Handed;
        if world.socket(&segment.tuple) == Socket::None {
            world.count(reason);
            let verdict = wait_for_listener(connection, world.now_ns());
            return counted(world, verdict);
        }
        counted(world, Verdict::Up(reason))
    }

    /// A request at `rcv_nxt`, with everything of ours acknowledged.
    pub(super) fn on_request(&mut self, world: &mut impl World, segment: &Segment<'_>) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let chosen = may_answer(world, segment).and_then(|()| choose(world, segment, connection));
        let answer = match chosen {
            Ok(answer) => answer,
            Err(reason) => return self.up(world, segment, reason),
        };
        let frame = write(
            &answer,
            segment,
            connection,
            (connection.snd_nxt, segment.end()),
        );
        connection.rcv_nxt = segment.end();
        connection.snd_nxt = connection.snd_nxt.wrapping_add(answer.len());
        connection.parts = 0;
        connection.under_way = Some(UnderWay {
            id: answer.id,
            len: answer.bytes.len(),
            request_len: segment.payload.len(),
        });
        if answer.closes {
            connection.state = State::Closing;
        }
        replied(world, Reason::AnswerHit, frame)
    }

    /// The last request once more, from a client that has nothing of the answer yet; perhaps with less
    /// of it, or with more behind it: clients cut anew what they send again, and put it together.
    pub(super) fn on_same_request(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
        under_way: UnderWay,
    ) -> Verdict {
        let connection = *self.table.get(&segment.tuple).expect("just found");
        let fin = usize::from(segment.flags & FIN != 0);
        if segment.payload.len() + fin > under_way.request_len {
            held::hold(&mut self.table, segment, &connection, under_way.request_len);
        }
        self.answer_again(world, &segment.cut(under_way.request_len), under_way)
    }

    /// The client has a part of the answer, which somebody on the way has cut. Its timer has nothing to wait
    /// for any more, so it gets the answer once more at once; but not for ever, because an
    /// acknowledgement costs less than a request. Then it is told that this is the end.
    pub(super) fn on_part(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
        under_way: UnderWay,
    ) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        if connection.parts == AGAIN_MAX {
            return self.reset(world, segment, Reason::TcpGone);
        }
        connection.parts += 1;
        let mut bare = segment.cut(0);
        bare.seq = connection.rcv_nxt;
        self.answer_again(world, &bare, under_way)
    }

    /// The answer under way once more. The client may have it already, or a part, or not, so nobody else
    /// may answer that request: it gets the same again, fresh or not, as long as it is there, or the end.
    pub(super) fn answer_again(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
        under_way: UnderWay,
    ) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        match again(world, segment, connection, &under_way) {
            Ok(answer) => {
                let seq = connection.snd_nxt.wrapping_sub(answer.len());
                let frame = write(&answer, segment, connection, (seq, connection.rcv_nxt));
                replied(world, Reason::AnswerAgain, frame)
            }
            Err(Reason::UpWindow) => counted(world, Verdict::Drop(Reason::UpWindow)),
            Err(_) => self.reset(world, segment, Reason::TcpGone),
        }
    }
}

/// The answer of which the segment acknowledges a part.
pub(super) fn part_of(segment: &Segment<'_>, connection: &Connection) -> Option<UnderWay> {
    let under_way = connection.under_way?;
    let begin = connection.acknowledged().1;
    let part = connection.acknowledged_part(segment.ack);
    let is_part = 0 < part && part < connection.under_way_len();
    let is_near = segment.seq.wrapping_sub(begin) <= u32::from(WINDOW);
    (is_part && is_near).then_some(under_way)
}
