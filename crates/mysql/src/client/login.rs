//! The beginning of a connection: greeting, login and the session's settings.

use super::{ClientState, MySqlClient, failure};
use crate::auth::{self, AuthPlugin};
use crate::error::MySqlError;
use crate::event::MySqlEvent;
use crate::greeting::{self, ServerGreeting};
use crate::login::TlsPolicy;
use crate::packet_reader::PacketReader;
use crate::{packet, request};

const OK: u8 = 0x00;
const MORE: u8 = 0x01;
const SWITCH: u8 = 0xfe;
const ERR: u8 = 0xff;

/// The status bytes of `caching_sha2_password`.
const FAST_IS_ENOUGH: u8 = 3;
const ALL_IS_WANTED: u8 = 4;
const ASK_FOR_KEY: u8 = 2;
/// The request for the key in `sha256_password`.
const SHA256_ASK_FOR_KEY: u8 = 1;

impl MySqlClient {
    pub(super) fn greeting(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        // The server may refuse the connection at once, for example with "too many connections".
        if payload.first() == Some(&ERR) {
            failure(payload, events)?;
            return Err(MySqlError::LoginRefused);
        }
        let greeting = greeting::read(payload)?;
        let starts_tls = match (self.login.tls, greeting.offers_tls()) {
            (TlsPolicy::Never, _) | (TlsPolicy::IfOffered, false) => false,
            // An attacker that removes the TLS capability from the greeting must not cause a login in clear.
            (TlsPolicy::Required, false) => return Err(MySqlError::NoTls),
            (_, true) => true,
        };
        self.dialect = greeting.dialect();
        self.salt = greeting.salt;
        // The server's default method may differ from the user's, so a supported one is offered; the server can switch.
        self.plugin = match greeting.plugin {
            AuthPlugin::Unknown(_) | AuthPlugin::Sha256 => AuthPlugin::Native,
            known => known,
        };
        self.settings = greeting::settings(&self.login, greeting.is_mariadb);
        // Taken from the end by `next_setting`.
        self.settings.reverse();
        if starts_tls {
            let start = packet::begin(&mut self.out, self.sequence);
            greeting.tls_request(&self.login, &mut self.out);
            packet::end(&mut self.out, start);
            self.set_next_state(ClientState::Tls);
            // The reply depends on the greeting, and follows after the handshake.
            self.greeting = Some(greeting);
            events(MySqlEvent::StartTls);
        } else {
            self.answer_greeting(&greeting);
        }
        Ok(())
    }

    fn answer_greeting(&mut self, greeting: &ServerGreeting) {
        let auth_response = self.plugin.auth_response(&self.login.password, &self.salt);
        let start = packet::begin(&mut self.out, self.sequence);
        greeting.answer(
            &self.login,
            &self.plugin,
            &auth_response,
            self.is_tls,
            &mut self.out,
        );
        packet::end(&mut self.out, start);
        self.set_next_state(ClientState::Login);
    }

    /// Continues the login over TLS, after `MySqlEvent::StartTls`.
    ///
    /// # Errors
    /// Bytes arrived before the TLS handshake, or the client has not requested TLS.
    pub fn tls_started(&mut self) -> Result<(), MySqlError> {
        let greeting = self
            .greeting
            .take()
            .filter(|_| self.state == ClientState::Tls);
        // Bytes that arrived before the handshake could have been injected in clear.
        let Some(greeting) = greeting.filter(|_| self.partial.is_empty()) else {
            self.close();
            return Err(MySqlError::Protocol("bytes before the TLS handshake"));
        };
        self.is_tls = true;
        self.answer_greeting(&greeting);
        Ok(())
    }

    pub(super) fn login(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        let mut from = PacketReader(payload);
        match from.u8()? {
            OK => {
                // The password is not needed again, so it does not stay in memory.
                self.login.password.clear();
                self.next_setting(events);
                Ok(())
            }
            ERR => {
                failure(payload, events)?;
                Err(MySqlError::LoginRefused)
            }
            SWITCH => self.switch(from),
            MORE if self.plugin == AuthPlugin::CachingSha2 => match from.u8()? {
                // An OK packet follows: the server had the password's hash in its cache.
                FAST_IS_ENOUGH => Ok(()),
                ALL_IS_WANTED => self.whole_password(ASK_FOR_KEY),
                _ => Err(MySqlError::Protocol("an unknown request during the login")),
            },
            _ => Err(MySqlError::Protocol("an unknown request during the login")),
        }
    }

    /// Handles the server's switch to another authentication method.
    fn switch(&mut self, mut from: PacketReader<'_>) -> Result<(), MySqlError> {
        self.plugin = AuthPlugin::from_name(from.until_zero());
        if let AuthPlugin::Unknown(reason) = self.plugin {
            return Err(MySqlError::Unsupported(reason));
        }
        // The new method has its own salt.
        self.salt = from.array()?;
        if self.plugin == AuthPlugin::Sha256 {
            return self.whole_password(SHA256_ASK_FOR_KEY);
        }
        let auth_response = self.plugin.auth_response(&self.login.password, &self.salt);
        self.answer(&auth_response, ClientState::Login);
        Ok(())
    }

    /// Sends the whole password inside TLS, or requests the key to encrypt it. An empty password needs no secrecy.
    fn whole_password(&mut self, key_request: u8) -> Result<(), MySqlError> {
        // Inside TLS the password is protected. An empty one is only the final zero.
        if self.is_tls || self.login.password.is_empty() {
            let ended = [self.login.password.as_bytes(), &[0]].concat();
            self.answer(&ended, ClientState::Login);
        } else if self.login.trusts_key {
            self.answer(&[key_request], ClientState::Key);
        } else {
            return Err(MySqlError::Unsupported(
                "the database server requires the full password, as after its start: log in once \
                 from another client, change the user to mysql_native_password, or trust the \
                 server's key",
            ));
        }
        Ok(())
    }

    pub(super) fn key(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        let mut from = PacketReader(payload);
        match from.u8()? {
            MORE => {
                let password = &self.login.password;
                let encrypted = auth::encrypt_password(password, &self.salt, from.0, &self.random)?;
                // The bytes served as the encryption's seed, which must not be used twice.
                self.random = [0; 32];
                // A second request would be encrypted with the same random bytes, so it is not answered.
                self.login.trusts_key = false;
                self.answer(&encrypted, ClientState::Login);
                Ok(())
            }
            ERR => {
                failure(payload, events)?;
                Err(MySqlError::LoginRefused)
            }
            _ => Err(MySqlError::Protocol(
                "an unexpected packet in place of its public key",
            )),
        }
    }

    pub(super) fn setting(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        match payload.first() {
            Some(&OK) => {
                self.next_setting(events);
                Ok(())
            }
            Some(&ERR) => {
                failure(payload, events)?;
                Err(MySqlError::LoginRefused)
            }
            _ => Err(MySqlError::Protocol("a result in response to a setting")),
        }
    }

    fn next_setting(&mut self, events: &mut impl FnMut(MySqlEvent<'_>)) {
        if let Some(setting) = self.settings.pop() {
            request::query(&mut self.out, &setting);
            self.expect(ClientState::Setting);
        } else {
            self.settings = alloc::vec::Vec::new();
            // A copy without capacity, since the list is not needed again.
            self.state = ClientState::Idle;
            events(MySqlEvent::Ready);
        }
    }

    fn answer(&mut self, payload: &[u8], next: ClientState) {
        let start = packet::begin(&mut self.out, self.sequence);
        self.out.extend_from_slice(payload);
        packet::end(&mut self.out, start);
        self.set_next_state(next);
    }

    fn set_next_state(&mut self, next: ClientState) {
        self.sequence = self.sequence.wrapping_add(1);
        self.state = next;
    }
}
