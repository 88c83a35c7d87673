//! The start of a connection: greeting, login, and setting session variables.

use super::{ClientState, MySqlClient, failure};
use crate::auth::{self, AuthPlugin};
use crate::error::MySqlError;
use crate::event::MySqlEvent;
use crate::greeting::{self, ServerGreeting};
use crate::login::TlsPolicy;
use crate::packet_reader::PacketReader;
use crate::{packet, request};

const OK: u8 = 0x00;
const AUTH_MORE_DATA: u8 = 0x01;
const AUTH_SWITCH_REQUEST: u8 = 0xfe;
const ERR: u8 = 0xff;

/// Status bytes of `caching_sha2_password`.
const FAST_AUTH_SUCCESS: u8 = 3;
const PERFORM_FULL_AUTH: u8 = 4;
const REQUEST_PUBLIC_KEY: u8 = 2;
/// The request for the public key in `sha256_password`.
const SHA256_REQUEST_PUBLIC_KEY: u8 = 1;

impl MySqlClient {
    pub(super) fn greeting(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        // The server can refuse the connection, for example with "too many connections".
        if payload.first() == Some(&ERR) {
            failure(payload, events)?;
            return Err(MySqlError::LoginRefused);
        }
        let greeting = greeting::read(payload)?;
        let starts_tls = match (self.login.tls, greeting.offers_tls()) {
            (TlsPolicy::Never, _) | (TlsPolicy::IfOffered, false) => false,
            // An attacker could remove the TLS capability from the greeting; this must not cause a login without TLS.
            (TlsPolicy::Required, false) => return Err(MySqlError::NoTls),
            (_, true) => true,
        };
        self.capabilities = greeting.session_capabilities();
        self.salt = greeting.salt;
        // The server's default method may not be that of the user; a supported method is used, and the server can
        // switch.
        self.plugin = match greeting.plugin {
            AuthPlugin::Unknown(_) | AuthPlugin::Sha256 => AuthPlugin::Native,
            known => known,
        };
        self.settings = greeting::settings(&self.login, greeting.is_mariadb);
        // `next_setting` takes statements from the end.
        self.settings.reverse();
        if starts_tls {
            let start = packet::begin(&mut self.out, self.sequence);
            greeting.tls_request(&self.login, &mut self.out);
            packet::end(&mut self.out, start);
            self.set_next_state(ClientState::Tls);
            // The greeting is kept: the reply depends on it, and is sent after the handshake.
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

    /// Continues the login over TLS after `MySqlEvent::StartTls`.
    ///
    /// # Errors
    /// Bytes arrived before the TLS handshake, or the client has not requested TLS.
    pub fn tls_started(&mut self) -> Result<(), MySqlError> {
        let greeting = self
            .greeting
            .take()
            .filter(|_| self.state == ClientState::Tls);
        // Bytes that arrived before the handshake could have been injected by an attacker.
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
                // The password is no longer needed, so it is removed from memory.
                self.login.password.clear();
                self.next_setting(events);
                Ok(())
            }
            ERR => {
                failure(payload, events)?;
                Err(MySqlError::LoginRefused)
            }
            AUTH_SWITCH_REQUEST => self.switch(from),
            AUTH_MORE_DATA if self.plugin == AuthPlugin::CachingSha2 => match from.u8()? {
                // An OK packet follows: the password's hash was in the server's cache.
                FAST_AUTH_SUCCESS => Ok(()),
                PERFORM_FULL_AUTH => self.send_full_password(REQUEST_PUBLIC_KEY),
                _ => Err(MySqlError::Protocol("an unknown request during the login")),
            },
            _ => Err(MySqlError::Protocol("an unknown request during the login")),
        }
    }

    /// Handles AuthSwitchRequest: the server switches to another authentication method.
    fn switch(&mut self, mut from: PacketReader<'_>) -> Result<(), MySqlError> {
        self.plugin = AuthPlugin::from_name(from.until_zero());
        if let AuthPlugin::Unknown(reason) = self.plugin {
            return Err(MySqlError::Unsupported(reason));
        }
        // The new method has its own salt.
        self.salt = from.array()?;
        if self.plugin == AuthPlugin::Sha256 {
            return self.send_full_password(SHA256_REQUEST_PUBLIC_KEY);
        }
        let auth_response = self.plugin.auth_response(&self.login.password, &self.salt);
        self.answer(&auth_response, ClientState::Login);
        Ok(())
    }

    /// Sends the full password inside TLS; otherwise requests the public key to encrypt it. An empty password is sent
    /// in plaintext.
    fn send_full_password(&mut self, key_request: u8) -> Result<(), MySqlError> {
        // TLS protects the password. An empty password consists of the terminating zero only.
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
            AUTH_MORE_DATA => {
                let password = &self.login.password;
                let encrypted = auth::encrypt_password(password, &self.salt, from.0, &self.random)?;
                // The random bytes were the seed of the encryption, which must not be used twice.
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
