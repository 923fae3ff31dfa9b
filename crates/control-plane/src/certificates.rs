//! An authority and a serving certificate, fresh for each start, in memory.

use std::io;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
};

pub(crate) struct Certificates {
    pub(crate) ca_pem: String,
    pub(crate) tls: rustls::ServerConfig,
}

impl Certificates {
    /// For `127.0.0.1` and `localhost`.
    pub(crate) fn create() -> io::Result<Self> {
        Self::try_create().map_err(io::Error::other)
    }

    fn try_create() -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.distinguished_name = named("kerf-control-plane");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let mut serving = CertificateParams::new(vec![
            "localhost".to_owned(),
            "kubernetes.default.svc".to_owned(),
            "127.0.0.1".to_owned(),
        ])?;
        serving.distinguished_name = named("kube-apiserver");
        let key = KeyPair::generate()?;
        let certificate = serving.signed_by(&key, &authority)?;

        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der())?;
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { ca_pem: authority.pem(), tls })
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
