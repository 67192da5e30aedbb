//! A test with OpenLDAP's server, where it is installed: it reads distinguished names as RFC 4514 says.

use super::{case, config, def, json, user};
use testkit::Slapd;

/// Users whose names have a meaning in a distinguished name, and an administrator in another place.
const TREE: &str = r#"
dn: dc=case,dc=test
objectClass: dcObject
objectClass: organization
dc: case
o: case

dn: ou=people,dc=case,dc=test
objectClass: organizationalUnit
ou: people

dn: ou=admins,ou=people,dc=case,dc=test
objectClass: organizationalUnit
ou: admins

dn: uid=root,ou=admins,ou=people,dc=case,dc=test
objectClass: inetOrgPerson
uid: root
cn: root
sn: root
userPassword: root-pw

dn: uid=Berg\, Nora\+\"\<x\>\"\;\#\=\\,ou=people,dc=case,dc=test
objectClass: inetOrgPerson
uid: Berg, Nora+"<x>";#=\
cn: nora
sn: Berg
userPassword: nora-pw
"#;

#[tokio::test]
async fn a_real_directory_reads_escaped_names() {
    let Some(slapd) = Slapd::start(TREE, None) else {
        return;
    };
    let more = json!({"base_dn": "ou=people,dc=case,dc=test"});
    let case = case(def(), config(slapd.address, more));
    let nora = "Berg, Nora+\"<x>\";#=\\";
    assert_eq!(user(&case, nora, "nora-pw").await, nora);
    assert_eq!(user(&case, nora, "wrong").await, "401 LDAP");
    // Unescaped, this would be the name of the administrator.
    assert_eq!(user(&case, "root,ou=admins", "root-pw").await, "401 LDAP");
    assert_eq!(user(&case, "root", "root-pw").await, "401 LDAP");
    let more = json!({"base_dn": "ou=admins,ou=people,dc=case,dc=test"});
    let admins = super::case(def(), config(slapd.address, more));
    assert_eq!(user(&admins, "root", "root-pw").await, "root");
}
