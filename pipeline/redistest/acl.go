package redistest

import "net/url"

// User is an ACL user of a server.
type User struct {
	Name     string
	Password string // "" lets anybody in who names the user
	// Rules are what it may do, as ACL SETUSER takes them: "~*", "&*", "+@all", "-script". It may do nothing else.
	Rules []string
}

// Users are the arguments that start a server with users: Start(t, Users(...)...). The user named default is everybody who
// names no user, and Server.Client too; as long as it is not among them it may do everything.
func Users(users ...User) []string {
	var args []string
	for _, u := range users {
		secret := "nopass"
		if u.Password != "" {
			secret = ">" + u.Password
		}
		args = append(args, "--user", u.Name, "on", secret)
		args = append(args, u.Rules...)
	}
	return args
}

// URLAs is the server's URL with a user's name and password.
func (s *Server) URLAs(user User) string {
	u := url.URL{Scheme: "redis", User: url.UserPassword(user.Name, user.Password), Host: s.Addr(), Path: "/0"}
	if s.launch.tls != nil {
		u.Scheme = "rediss"
	}
	return u.String()
}
