package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// makeKeys writes what the suite needs: a certificate authority that the clients trust (ca.pem), a certificate of
// localhost for the gateway (tls.pem, tls.key), and keys for signed tokens (ec.key, rsa.key).
func makeKeys(directory string) error {
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	server, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	root := certificate(1, "compat")
	root.IsCA = true
	root.BasicConstraintsValid = true
	root.KeyUsage = x509.KeyUsageCertSign
	leaf := certificate(2, "localhost")
	leaf.DNSNames = []string{"localhost"}
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, authority.Public(), authority)
	if err != nil {
		return err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, server.Public(), authority)
	if err != nil {
		return err
	}
	for name, der := range map[string][]byte{"ca.pem": rootDER, "tls.pem": leafDER} {
		if err := write(directory, name, "CERTIFICATE", der); err != nil {
			return err
		}
	}
	for name, key := range map[string]crypto.PrivateKey{"tls.key": server, "ec.key": ecKey, "rsa.key": rsaKey} {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return err
		}
		if err := write(directory, name, "PRIVATE KEY", der); err != nil {
			return err
		}
	}
	return nil
}

func certificate(serial int64, name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
	}
}

func write(directory, name, kind string, der []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return os.WriteFile(filepath.Join(directory, name), text, 0o600)
}
