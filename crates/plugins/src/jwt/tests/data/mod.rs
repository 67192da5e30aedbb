//! Keys that the tests cannot make, and tokens of them. OpenSSL has made them.

/// An RSA key of 1,024 bits, and tokens of it.
pub(super) const SHORT: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDRMrwh+8rQFn1cxgItDcNg4x+H
af64V58MVFz+JU10ICX/iYc5Vp6V4Xzqdgf7ERvtr1PIBADY1lGJlYQmAnMkKcaO
Ps19hkME6UcpO7K1wcsH+wf86tHfi/IewJQPT/SkYuNmTgR300DNrPVy4jdS4htc
1AuUPyW1IVVHE/9iQwIDAQAB
-----END PUBLIC KEY-----
";
/// The key of `SHORT` in the form RSAPublicKey of PKCS #1.
pub(super) const SHORT_PKCS1: &str = "-----BEGIN RSA PUBLIC KEY-----
MIGJAoGBANEyvCH7ytAWfVzGAi0Nw2DjH4dp/rhXnwxUXP4lTXQgJf+JhzlWnpXh
fOp2B/sRG+2vU8gEANjWUYmVhCYCcyQpxo4+zX2GQwTpRyk7srXBywf7B/zq0d+L
8h7AlA9P9KRi42ZOBHfTQM2s9XLiN1LiG1zUC5Q/JbUhVUcT/2JDAgMBAAE=
-----END RSA PUBLIC KEY-----
";
pub(super) const SHORT_RS256: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJzaG9ydFJTMjU2In0.Vv5p11BcId0SATI-VuSiAMSuln3pmNcLTUQf8z-L7zjM4Yv3hwSDIQHnaMUf1W38AKZGhFTQGAy_YpV64iYUppzb5e_OTOTqNtSkpUXB65U4AHZ5wRW_7jMQF_GyQRR5ieqTzc4q1sQvE78oisrefTdP9JjJ--vRFp8EVbIB3rU";
pub(super) const SHORT_RS384: &str = "eyJhbGciOiJSUzM4NCJ9.eyJpc3MiOiJzaG9ydFJTMzg0In0.Zfv5N3uRoKA0iSwO-C3CdbEN5B9sltZTPqNdj4socPkn4rX78_hhxw-FKj0XQY6tUU1_u4cssdZ44ziKCpvL5quwNaf_HWuMwLaAeVJprrf-otSo5TeQRv7Eq76eaSZkgTW5lfTtBM9-0smN7w--a2Mg5-IYEKQZeOuvFA1qOHY";
pub(super) const SHORT_RS512: &str = "eyJhbGciOiJSUzUxMiJ9.eyJpc3MiOiJzaG9ydFJTNTEyIn0.PHuDOtCKW6JK-OQX3nU_LXTxYo5mpTrQEKiNADFBLi4dlSWK57oemwc5NXmk830LcUoP6WOgkyUmzyjnHreF9ccjWVrmntGqRQq6aK0maxi2j3MOam5Q0HfNNjnVWE9WO1WFKpz5skip_gJjbRRzJapOOvAmvf4EsQFf9U8whGc";
/// A token that was signed with the private key of the certificate.
pub(super) const OF_CERTIFICATE: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJvd24ifQ.jQgvxxLBh6-T4deNMxV_zaYv9CHD_AshsVmWMVmp1TsXnck3TU6_9kj2FmPOgEEuC7C33FhPsgMtr2u4SuJcDhbH1g72fFo3Mlt5x4EJEsOKrd33mhCP_BG0yqkDqWUzkHJ3vCj9qH4mU0IMHZX2QHwxTryDzhgkglG0-ekE6NfZLGellunO1PGwo7wHEUczP8M_SBkxbmMDw_HNwEC1CEmSNqTKTXJK63GBd_hZ04qsON-NNVCCnJCoEApGstaEKlCY1lkR83nx_ZqOn1fmhUaa8R5NlIfPkPeOlmrGXor-590eTuXc98yNKOglBfUwiTBxnrDB5SoWDaMsHiqDUA";
pub(super) const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIC+TCCAeGgAwIBAgIUbBrV3XcQUDklTA7x/gfwg27T2a4wDQYJKoZIhvcNAQEL
BQAwDDEKMAgGA1UEAwwBYTAeFw0yNjExMjcwNjU1MDhaFw0yNjEyMjcwNjU1MDha
MAwxCjAIBgNVBAMMAWEwggEiMA0GCSqGSIb3DQEBAQUAA4IBDwAwggEKAoIBAQC5
0mgMvIvcUeb73p6RAbBfW470/un32NQrxTmv7SY9wrXT92jbiYIpAOVqD2P2+dX7
Of4qAbYFznBYDWJlJoCofVpFYQEXbdLVhpQWdHXfNLMifvY9Qg6CLAi6cbuTXKvW
wCcxjQeWh2BHBMdFzg1WnhF/GK8QBXcTcFzIwznIrvm2hXxMC18JCG8Mx7Ccpw1M
BI8/aVug4Sembk1pq/TpRz7S8r2q56DlYaPQwMVXXBuwB3k9uMRda3P3k5zVijpu
NYnHWiN0L+tmWHBW/PK4iEqQKcirpKZKT/huV6ayhm2/BDsy8S4ZwxNJeq9Q4hSe
XtXG2ytvPc3i3zq18QbLAgMBAAGjUzBRMB0GA1UdDgQWBBTfCvW5b32azXx1HpIE
oOjAppDchDAfBgNVHSMEGDAWgBTfCvW5b32azXx1HpIEoOjAppDchDAPBgNVHRMB
Af8EBTADAQH/MA0GCSqGSIb3DQEBCwUAA4IBAQCnzbxUjH4knv86nFFoCquO8pot
Kg61fEgPXRab2SVVCikKOP5jt4VAwk0IYpza/c/rdi16qjrt/gHefm2XhswEfktF
yxDaLn1+mfFbMIIci4JmwGNyxqJ+2ZqXfs4F+9sDEayUnXdDOeWtRFpNRtQimik/
JFe5gvq5m/U2KroNNe2Tj9StnymULPqCZVopBzRndG2Za6Xz9Ze9lU1dfhf5sCoI
VfKbvSif7yg/xvyli0MzpoJaYgBYbibsF3nd1wsF1hLUNn/h0sRgybIzdPFDY0QT
7MbXxcaRHmEd1nMFaduaefkouznMVPtXxmkITXKyoCQQ4GTwEHJt9T7ZXisk
-----END CERTIFICATE-----
";
/// A key of a type that is not supported.
pub(super) const ED448: &str = "-----BEGIN PUBLIC KEY-----
MEMwBQYDK2VxAzoA/SSwZMpsC+fa7+WLwT+tAS5vJojQVy1MvQORo6UFJ+NicnBG
5L1c9iwaMGkN3ebzEVBAxld1l8CA
-----END PUBLIC KEY-----
";
