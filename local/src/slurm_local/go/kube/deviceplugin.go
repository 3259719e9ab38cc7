package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// devicePlugin offers devices that exist in name only: enough for the scheduler and the kubelet to count them.
type devicePlugin struct {
	api.UnimplementedDevicePluginServer
	resource string
	count    int
}

func newDevicePluginCommand() *cobra.Command {
	plugin := &devicePlugin{}
	command := &cobra.Command{
		Use:          "device-plugin",
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return plugin.serve(cmd.Context())
		},
	}
	command.Flags().StringVar(&plugin.resource, "resource", "nvidia.com/gpu", "name of the extended resource")
	command.Flags().IntVar(&plugin.count, "count", 1, "number of devices")
	return command
}

// serve ends when the kubelet empties its plugin folder, as it does on every start: whoever supervises
// this program starts it again, and it registers anew.
func (p *devicePlugin) serve(ctx context.Context) error {
	socket := filepath.Join(api.DevicePluginPath, "stage.sock")
	if err := os.RemoveAll(socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if err := p.register(ctx, filepath.Base(socket)); err != nil {
		return err
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if _, err := os.Stat(socket); err != nil {
				return err
			}
		}
	}
}

func (p *devicePlugin) register(ctx context.Context, endpoint string) error {
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: p.resource}
	_, err = api.NewRegistrationClient(connection).Register(ctx, request, grpc.WaitForReady(true))
	return err
}

func (p *devicePlugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *devicePlugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	devices := make([]*api.Device, p.count)
	for i := range devices {
		devices[i] = &api.Device{ID: fmt.Sprintf("%d", i), Health: api.Healthy}
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *devicePlugin) Allocate(_ context.Context, requests *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, request := range requests.ContainerRequests {
		ids := ""
		for i, id := range request.DevicesIds {
			if i > 0 {
				ids += ","
			}
			ids += id
		}
		response.ContainerResponses = append(response.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": ids},
		})
	}
	return response, nil
}
