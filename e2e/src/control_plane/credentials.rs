//! Credentials for one control plane, made fresh and thrown away with its folder.
//!
//! Elliptic keys throughout: made in microseconds where an RSA key takes a noticeable part of the whole start.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// What the servers read, and what a client needs to be let in.
pub(super) struct Credentials {
    pub(super) ca_pem: String,
    pub(super) token: String,
    pub(super) serving_cert: PathBuf,
    pub(super) serving_key: PathBuf,
    pub(super) service_account_key: PathBuf,
    pub(super) service_account_public_key: PathBuf,
    pub(super) token_file: PathBuf,
    pub(super) ca_file: PathBuf,
}

impl Credentials {
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let (ca_pem, cert_pem, key_pem) = serving_certificate().context("cannot make a serving certificate")?;
        let service_account = KeyPair::generate().context("cannot make a service account key")?;
        let token = random_token().context("cannot draw a token")?;
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(path)
        };
        Ok(Self {
            serving_cert: write("serving.crt", &cert_pem)?,
            serving_key: write("serving.key", &key_pem)?,
            service_account_key: write("service-account.key", &service_account.serialize_pem())?,
            // The server reads elliptic private keys in this envelope for signing only; for checking it wants the public half.
            service_account_public_key: write("service-account.pub", &service_account.public_key_pem())?,
            token_file: write("tokens.csv", &format!("{token},kerf,kerf,system:masters\n"))?,
            ca_file: write("ca.crt", &ca_pem)?,
            ca_pem,
            token,
        })
    }

    pub(super) fn kubeconfig(&self, endpoint: &str) -> String {
        let (ca_file, token) = (self.ca_file.display(), &self.token);
        format!(
            "apiVersion: v1
kind: Config
current-context: kerf
clusters:
- name: kerf
  cluster:
    server: {endpoint}
    certificate-authority: {ca_file}
users:
- name: kerf
  user:
    token: {token}
contexts:
- name: kerf
  context:
    cluster: kerf
    user: kerf
"
        )
    }
}

/// An authority, and a certificate of it for loopback and for the names the server has inside its cluster.
fn serving_certificate() -> Result<(String, String, String)> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name.push(DnType::CommonName, "kerf control plane");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let authority_key = KeyPair::generate()?;
    let ca_pem = authority.self_signed(&authority_key)?.pem();

    let names =
        ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned);
    let mut serving = CertificateParams::new(names)?;
    serving.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let serving_key = KeyPair::generate()?;
    let cert_pem = serving.signed_by(&serving_key, &Issuer::new(authority, authority_key))?.pem();
    Ok((ca_pem, cert_pem, serving_key.serialize_pem()))
}

fn random_token() -> Result<String> {
    let mut bytes = [0_u8; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
