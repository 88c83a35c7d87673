//! Password authentication methods: `mysql_native_password`, `caching_sha2_password` and `sha256_password`. For the
//! last two, the server can request the full password, which is sent inside TLS or encrypted with RSA-OAEP. This module
//! is independent of packets and connections.

use alloc::vec::Vec;

use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::error::MySqlError;
use crate::password_encryption;

/// An authentication method (plugin).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthPlugin {
    /// `mysql_native_password`
    Native,
    /// `caching_sha2_password`
    CachingSha2,
    /// `sha256_password`, which always requires the full password
    Sha256,
    /// A method that this client does not support; the text is a message with the remedy.
    Unknown(&'static str),
}

impl AuthPlugin {
    /// The plugin with this name.
    pub fn from_name(name: &[u8]) -> AuthPlugin {
        match name {
            b"mysql_native_password" => AuthPlugin::Native,
            b"caching_sha2_password" => AuthPlugin::CachingSha2,
            b"sha256_password" => AuthPlugin::Sha256,
            b"client_ed25519" => AuthPlugin::Unknown(
                "the database user uses the plugin ed25519: change it to mysql_native_password",
            ),
            b"auth_socket" | b"unix_socket" => AuthPlugin::Unknown(
                "the database user authenticates by Unix socket, which the image does not have: \
                 give it a password",
            ),
            b"mysql_clear_password" | b"dialog" => AuthPlugin::Unknown(
                "the database server requests the password in clear text: change the user to \
                 mysql_native_password",
            ),
            b"auth_gssapi_client" => AuthPlugin::Unknown(
                "the database user uses the plugin gssapi: change it to mysql_native_password",
            ),
            b"mysql_old_password" => AuthPlugin::Unknown(
                "the database user has a password from before MySQL 4.1: change it to mysql_native_password",
            ),
            _ => AuthPlugin::Unknown(
                "the database user uses an unknown authentication plugin: change it to mysql_native_password",
            ),
        }
    }

    /// The plugin's name; for an unknown plugin, the name of the default plugin.
    pub fn name(&self) -> &'static str {
        match self {
            AuthPlugin::CachingSha2 => "caching_sha2_password",
            AuthPlugin::Sha256 => "sha256_password",
            AuthPlugin::Native | AuthPlugin::Unknown(_) => "mysql_native_password",
        }
    }

    /// The response to the server's challenge (salt); empty for an empty password.
    pub fn auth_response(&self, password: &str, salt: &[u8; 20]) -> Vec<u8> {
        match self {
            // In all plugins, an empty response means an empty password.
            _ if password.is_empty() => Vec::new(),
            AuthPlugin::Native => native(password, salt).to_vec(),
            AuthPlugin::CachingSha2 => caching_sha2(password, salt).to_vec(),
            // `sha256_password` has no challenge-response form.
            AuthPlugin::Sha256 | AuthPlugin::Unknown(_) => Vec::new(),
        }
    }
}

/// SHA1(password) XOR SHA1(salt, SHA1(SHA1(password)))
fn native(password: &str, salt: &[u8; 20]) -> [u8; 20] {
    let hashed = Sha1::digest(password);
    let salted = Sha1::new()
        .chain_update(salt)
        .chain_update(Sha1::digest(hashed))
        .finalize();
    core::array::from_fn(|at| hashed[at] ^ salted[at])
}

/// SHA256(password) XOR SHA256(SHA256(SHA256(password)), salt)
fn caching_sha2(password: &str, salt: &[u8; 20]) -> [u8; 32] {
    let hashed = Sha256::digest(password);
    let salted = Sha256::new()
        .chain_update(Sha256::digest(hashed))
        .chain_update(salt)
        .finalize();
    core::array::from_fn(|at| hashed[at] ^ salted[at])
}

/// Encrypts the password with the server's public key.
///
/// # Errors
/// The key is invalid or too short.
pub fn encrypt_password(
    password: &str,
    salt: &[u8; 20],
    key_pem: &[u8],
    random: &[u8; 32],
) -> Result<Vec<u8>, MySqlError> {
    // Before encryption, the protocol XORs the zero-terminated password with the salt.
    let ended = password.bytes().chain([0]);
    let salted = ended
        .zip(salt.iter().cycle())
        .map(|(byte, salt)| byte ^ salt);
    let salted: Vec<u8> = salted.collect();
    // The random bytes are hashed to the length of a seed, so that all 32 of them contribute.
    let seed = Sha1::digest(random);
    password_encryption::rsa_oaep_encrypt(&salted, key_pem, &seed.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server stores SHA1(SHA1(password)), and verifies a response like this test does.
    #[test]
    fn native_response_passes_server_verification() {
        let salt = *b"01234567890123456789";
        let response_bytes = AuthPlugin::Native.auth_response("geheim", &salt);
        let stored = Sha1::digest(Sha1::digest("geheim"));
        let mixed = Sha1::new()
            .chain_update(salt)
            .chain_update(stored)
            .finalize();
        let once: Vec<u8> = response_bytes
            .iter()
            .zip(mixed)
            .map(|(a, b)| a ^ b)
            .collect();
        assert_eq!(Sha1::digest(once), stored);
        assert!(AuthPlugin::Native.auth_response("", &salt).is_empty());
    }

    #[test]
    fn caching_sha2_response_passes_server_verification() {
        let salt = *b"01234567890123456789";
        let response_bytes = AuthPlugin::CachingSha2.auth_response("geheim", &salt);
        let stored = Sha256::digest(Sha256::digest("geheim"));
        let mixed = Sha256::new()
            .chain_update(stored)
            .chain_update(salt)
            .finalize();
        let once: Vec<u8> = response_bytes
            .iter()
            .zip(mixed)
            .map(|(a, b)| a ^ b)
            .collect();
        assert_eq!(Sha256::digest(once), stored);
    }
}
