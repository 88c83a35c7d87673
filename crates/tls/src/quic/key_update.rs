//! Keys of the next key update (RFC 9001 §6), derived at their first use: most connections never update their keys, and
//! two AES-GCM contexts are 1.2 KB.

use std::sync::{Arc, OnceLock};

use rustls::Error;
use rustls::quic::{PacketKey, PacketKeySet, Secrets, Tag};

/// Constants of a cipher suite, which are the same for all keys of a connection.
#[derive(Clone, Copy)]
struct KeyLimits {
    tag_len: usize,
    confidentiality: u64,
    integrity: u64,
}

/// The keys of a generation, and the secrets of the one after it.
struct DerivedKeys {
    keys: PacketKeySet,
    next: Secrets,
}

/// Both keys of a generation.
struct KeyGeneration {
    secrets: Secrets,
    limits: KeyLimits,
    derived: OnceLock<DerivedKeys>,
}

impl KeyGeneration {
    fn new(secrets: Secrets, limits: KeyLimits) -> Arc<KeyGeneration> {
        Arc::new(KeyGeneration {
            secrets,
            limits,
            derived: OnceLock::new(),
        })
    }

    fn derived(&self) -> &DerivedKeys {
        self.derived.get_or_init(|| {
            // The call returns the keys of this generation, and moves the secrets to the next one.
            let mut next = self.secrets.clone();
            let keys = next.next_packet_keys();
            DerivedKeys { keys, next }
        })
    }
}

/// A key of one direction.
pub struct LazyPacketKey {
    generation: Arc<KeyGeneration>,
    is_local: bool,
}

impl LazyPacketKey {
    fn key(&self) -> &dyn PacketKey {
        let keys = &self.generation.derived().keys;
        match self.is_local {
            true => &*keys.local,
            false => &*keys.remote,
        }
    }
}

impl PacketKey for LazyPacketKey {
    fn encrypt_in_place(
        &self,
        packet_number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, Error> {
        self.key().encrypt_in_place(packet_number, header, payload)
    }

    fn decrypt_in_place<'a>(
        &self,
        packet_number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        self.key().decrypt_in_place(packet_number, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.generation.limits.tag_len
    }

    fn confidentiality_limit(&self) -> u64 {
        self.generation.limits.confidentiality
    }

    fn integrity_limit(&self) -> u64 {
        self.generation.limits.integrity
    }
}

/// The keys of a key update.
pub struct NextPacketKeys {
    /// Encrypts packets.
    pub local: LazyPacketKey,
    /// Decrypts packets.
    pub remote: LazyPacketKey,
}

/// The sequence of key updates of a connection.
pub(super) struct KeyUpdates {
    latest: Arc<KeyGeneration>,
    has_started: bool,
}

impl KeyUpdates {
    /// Updates that follow a first key with these secrets.
    pub fn new(secrets: Secrets, first: &dyn PacketKey) -> KeyUpdates {
        let limits = KeyLimits {
            tag_len: first.tag_len(),
            confidentiality: first.confidentiality_limit(),
            integrity: first.integrity_limit(),
        };
        KeyUpdates {
            latest: KeyGeneration::new(secrets, limits),
            has_started: false,
        }
    }

    /// The keys of the next generation.
    pub fn next_keys(&mut self) -> NextPacketKeys {
        // The first generation after that of the handshake exists already.
        if self.has_started {
            let next = self.latest.derived().next.clone();
            self.latest = KeyGeneration::new(next, self.latest.limits);
        }
        self.has_started = true;
        let key = |is_local| LazyPacketKey {
            generation: self.latest.clone(),
            is_local,
        };
        NextPacketKeys {
            local: key(true),
            remote: key(false),
        }
    }
}
