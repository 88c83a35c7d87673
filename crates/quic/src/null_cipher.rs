//! A session without cryptography, for simulations and tests: it exchanges transport parameters, and "encrypts" by a
//! checksum. The result depends on the input only, and costs little.

use std::any::Any;
use std::sync::Arc;

use bytes::BytesMut;
use quinn_proto::crypto::{
    AeadKey, ClientConfig, CryptoError, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey,
    HmacKey, KeyPair, Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};

/// The length of the tags of real ciphers.
const TAG_LEN: usize = 16;
/// The message that ends the handshake.
const FINISHED: &[u8] = b"finished";

/// Configuration of both sides, and the keys of tokens and resets.
#[derive(Debug)]
pub struct NullCipher;

/// A key of one level; packets of other levels have other checksums.
struct NullKey(u8);

fn checksum(level: u8, parts: &[&[u8]]) -> u64 {
    // FNV-1a.
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325 ^ u64::from(level), |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

impl PacketKey for NullKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let (header, payload) = buf.split_at_mut(header_len);
        let (content, tag) = payload.split_at_mut(payload.len() - TAG_LEN);
        let sum = checksum(self.0, &[&packet.to_be_bytes(), header, content]);
        // Tags have the length of real ones, so that packets have, too.
        tag.fill(0);
        tag[..8].copy_from_slice(&sum.to_be_bytes());
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let len = payload.len().checked_sub(TAG_LEN).ok_or(CryptoError)?;
        let sum = checksum(self.0, &[&packet.to_be_bytes(), header, &payload[..len]]);
        if payload[len..len + 8] != sum.to_be_bytes() {
            return Err(CryptoError);
        }
        payload.truncate(len);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        u64::MAX
    }

    fn integrity_limit(&self) -> u64 {
        u64::MAX
    }
}

impl HeaderKey for NullKey {
    fn decrypt(&self, _: usize, _: &mut [u8]) {}

    fn encrypt(&self, _: usize, _: &mut [u8]) {}

    fn sample_size(&self) -> usize {
        TAG_LEN
    }
}

fn keys(level: u8) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(NullKey(level)),
            remote: Box::new(NullKey(level)),
        },
        packet: KeyPair {
            local: Box::new(NullKey(level)),
            remote: Box::new(NullKey(level)),
        },
    }
}

/// The progress of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeStep {
    Hello,
    /// The keys of the level Handshake are in use.
    Keys,
    /// The keys of the level 1-RTT are in use.
    Finished,
    Done,
}

struct NullSession {
    side: Side,
    /// The encoded parameters of this side.
    hello: Vec<u8>,
    peer: Option<TransportParameters>,
    received: Vec<u8>,
    has_finished: bool,
    step: HandshakeStep,
}

impl NullSession {
    fn new(side: Side, params: &TransportParameters) -> NullSession {
        let mut encoded = Vec::new();
        params.write(&mut encoded);
        // The length comes first, since a message may arrive in parts.
        let mut hello = (encoded.len() as u16).to_be_bytes().to_vec();
        hello.append(&mut encoded);
        NullSession {
            side,
            hello,
            peer: None,
            received: Vec::new(),
            has_finished: false,
            step: HandshakeStep::Hello,
        }
    }
}

impl Session for NullSession {
    fn initial_keys(&self, _: &ConnectionId, _: Side) -> Keys {
        keys(0)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.step != HandshakeStep::Done
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.received.extend_from_slice(buf);
        if self.peer.is_none()
            && let Some((len, rest)) = self.received.split_first_chunk()
        {
            let len = usize::from(u16::from_be_bytes(*len));
            if let Some(mut params) = rest.get(..len) {
                self.peer = Some(TransportParameters::read(self.side, &mut params)?);
                self.received.drain(..2 + len);
            }
        }
        if self.peer.is_some() && self.received == FINISHED {
            self.has_finished = true;
            // The client's message is the last one.
            if self.side.is_server() {
                self.step = HandshakeStep::Done;
            }
        }
        Ok(false)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(self.peer)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        match (self.step, self.side) {
            (HandshakeStep::Hello, Side::Client) => {
                buf.append(&mut self.hello);
                self.peer?;
                self.step = HandshakeStep::Keys;
                Some(keys(1))
            }
            (HandshakeStep::Hello, Side::Server) => {
                self.peer?;
                buf.append(&mut self.hello);
                self.step = HandshakeStep::Keys;
                Some(keys(1))
            }
            // The server's message proves that it has the client's parameters.
            (HandshakeStep::Keys, Side::Client) if !self.has_finished => None,
            (HandshakeStep::Keys, side) => {
                buf.extend_from_slice(FINISHED);
                self.step = match side {
                    Side::Client => HandshakeStep::Done,
                    Side::Server => HandshakeStep::Finished,
                };
                Some(keys(2))
            }
            (HandshakeStep::Finished | HandshakeStep::Done, _) => None,
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(keys(2).packet)
    }

    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        true
    }

    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

impl ServerConfig for NullCipher {
    fn initial_keys(&self, _: u32, _: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        Ok(keys(0))
    }

    fn retry_tag(&self, _: u32, _: &ConnectionId, _: &[u8]) -> [u8; TAG_LEN] {
        [0; TAG_LEN]
    }

    fn start_session(self: Arc<Self>, _: u32, params: &TransportParameters) -> Box<dyn Session> {
        Box::new(NullSession::new(Side::Server, params))
    }
}

impl ClientConfig for NullCipher {
    fn start_session(
        self: Arc<Self>,
        _: u32,
        _: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        Ok(Box::new(NullSession::new(Side::Client, params)))
    }
}

impl HmacKey for NullCipher {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        // Repeated to the length of a signature.
        let sum = checksum(3, &[data]).to_be_bytes();
        for (byte, sum) in signature_out.iter_mut().zip(sum.iter().cycle()) {
            *byte = *sum;
        }
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let mut wanted = [0; 32];
        self.sign(data, &mut wanted);
        match signature == wanted {
            true => Ok(()),
            false => Err(CryptoError),
        }
    }
}

impl HandshakeTokenKey for NullCipher {
    fn aead_from_hkdf(&self, _: &[u8]) -> Box<dyn AeadKey> {
        Box::new(NullKey(4))
    }
}

impl AeadKey for NullKey {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        let sum = checksum(self.0, &[additional_data, data]);
        data.extend_from_slice(&sum.to_be_bytes());
        Ok(())
    }

    fn open<'a>(
        &self,
        data: &'a mut [u8],
        additional_data: &[u8],
    ) -> Result<&'a mut [u8], CryptoError> {
        let len = data.len().checked_sub(8).ok_or(CryptoError)?;
        let (content, sum) = data.split_at_mut(len);
        match checksum(self.0, &[additional_data, content]).to_be_bytes() == *sum {
            true => Ok(content),
            false => Err(CryptoError),
        }
    }
}
