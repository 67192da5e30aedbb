module silverback/compat/oauth2

go 1.26.3

require golang.org/x/oauth2 v0.38.0
