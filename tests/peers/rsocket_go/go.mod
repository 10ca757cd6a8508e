module onward/peers

go 1.21

require github.com/rsocket/rsocket-go v0.8.12
